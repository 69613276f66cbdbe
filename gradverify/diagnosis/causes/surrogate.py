"""A gradient for a function that only moves in jumps: rounding, a sign, a threshold.

Its derivative is zero wherever there is one, and a backward that says so trains nothing. So backward says something
else, mostly on purpose; whoever meant it should say so, and whoever did not should know.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from gradverify.core.model.generators import scattered
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.moved import outputs_at
from gradverify.diagnosis.block.relation import multiple_of_cotangent
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.variables import coordinates
from gradverify.diagnosis.naming.wording import differ

STRAIGHT_THROUGH = "straight-through"
_AROUND, _TIMES = (0.3, 1.0, 3.0), 4  # how far away, beside the input's size, and how often
_WITHIN = 16  # places between the entries of the point, or each of them and zero
_SMALL = 2.0**-30  # move there
_SELDOM = 0.02  # of the looks: a jump may lie within one
_MOST = 0.3  # of the outputs that a gradient is claimed of move at all


def straight_through(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The derivative is zero everywhere, here and elsewhere, and yet the output moves: in jumps.

    A gradient that does, as that of a relu, is the derivative of something smooth between its kinks, and no surrogate.
    """
    wrong = seen.wrong.any(1)
    if evidence.backward.problem.order > 1 or not bool(seen.zero.all()) or not _moves_in_jumps(evidence, wrong):
        return None
    claim = multiple_of_cotangent(evidence, seen, seen.wrong.any(0))
    count = differ(int(wrong.sum()), len(wrong), "elements")
    text = (
        f"{count}; {evidence.of.name} moves in jumps only, analytic {f'= {claim}' if claim else '≠ 0'}: "
        "a straight-through estimator; where it is meant, `surrogate` names the function that backward is for"
    )
    return Diagnosis(cause=STRAIGHT_THROUGH, explanation=text, share=1.0)


def _moves_in_jumps(evidence: Evidence, wrong: Tensor) -> bool:
    """Tell whether the outputs stand still at small steps from wherever one looks, and differ between these places."""
    generator = torch.Generator().manual_seed(0)
    here = coordinates(evidence)[0][evidence.wrt.coordinates].to(torch.float64)
    size = here.abs().nan_to_num(0.0, 0.0, 0.0)
    length = torch.where(size > 0, size, 1.0).clamp(min=float(size.max()) or 1.0)
    around = [here + distance * scattered(length, generator) for distance, _ in product(_AROUND, range(_TIMES))]
    seen = _looked(evidence, around, _SMALL * length, generator)
    if len(seen) < len(around):  # some are outside of the domain, as of a probability
        within = [_between(here, number % 2, generator) for number in range(_WITHIN)]
        seen += _looked(evidence, within, _SMALL * length, generator)
    if len(seen) < _TIMES:
        return False
    values, moved = (torch.stack(each) for each in zip(*seen, strict=True))
    differ_between = (values != values[0]).any(dim=0) & wrong
    still = int(moved.sum()) <= _SELDOM * moved.numel()
    return still and int(differ_between.sum()) >= _MOST * int(wrong.sum())


def _looked(
    evidence: Evidence, places: Sequence[Tensor], step: Tensor, generator: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Return the outputs at each place where there are any, and which of them a small step away are others."""
    found = []
    for there in places:
        one, other = (outputs_at(evidence, place) for place in (there, there + scattered(step, generator)))
        if one is not None and other is not None:
            found.append((one, one != other))
    return found


def _between(here: Tensor, smaller: int, generator: torch.Generator) -> Tensor:
    """Return a random place where the domain is likely to be: between two of the point's entries, or each and zero."""
    share = torch.rand(here.shape, generator=generator, dtype=here.dtype).to(here.device)
    other = here[torch.randperm(len(here), generator=generator).to(here.device)]
    return here * share if smaller else torch.lerp(here, other, share)
