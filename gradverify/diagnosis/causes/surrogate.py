"""A gradient for a function that only moves in jumps: rounding, a sign, a threshold.

Its derivative is zero wherever there is one, and a backward that says so trains nothing. So backward says something
else, mostly on purpose; whoever meant it should say so, and whoever did not should know.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.moved import outputs_at
from gradverify.diagnosis.block.relation import multiple_of_cotangent
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.variables import coordinates
from gradverify.diagnosis.naming.wording import differ

STRAIGHT_THROUGH = "straight-through"
_AROUND, _TIMES = (0.3, 1.0, 3.0), 4  # how far away, beside the input's size, and how often
_SMALL = 2.0**-30  # move there
_SELDOM = 0.02  # of the looks: a jump may lie within one
_MOST = 0.5  # of the outputs that a gradient is claimed of move at all


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
        "a straight-through estimator or another surrogate; where it is meant, `expect: fail` says so"
    )
    return Diagnosis(cause=STRAIGHT_THROUGH, explanation=text, share=1.0)


def _moves_in_jumps(evidence: Evidence, wrong: Tensor) -> bool:
    """Tell whether the outputs stand still at small steps from wherever one looks, and differ between these places."""
    generator = torch.Generator().manual_seed(0)
    here = coordinates(evidence)[0][evidence.wrt.coordinates].to(torch.float64)
    size = here.abs().nan_to_num(0.0, 0.0, 0.0)
    length = torch.where(size > 0, size, 1.0).clamp(min=float(size.max()) or 1.0)
    looks = felt = 0
    values = []
    for distance, _ in product(_AROUND, range(_TIMES)):
        there = here + distance * scattered(length, generator)
        one, other = (outputs_at(evidence, place) for place in (there, there + _SMALL * scattered(length, generator)))
        if one is None or other is None:
            return False
        looks, felt = looks + one.numel(), felt + int((one != other).sum())
        values.append(one)
    differ_between = (torch.stack(values) != values[0]).any(dim=0) & wrong
    return felt <= _SELDOM * looks and int(differ_between.sum()) >= _MOST * int(wrong.sum())
