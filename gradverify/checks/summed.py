"""GV301 as gradcheck meets it: a gradient that is right for every output, and wrong for what is made of them.

A small Jacobian is asked for row by row, with one cotangent at a time that is not zero, and not 1 where there is one
output only. A backward that clips or normalises what it gets may say the truth to each of these and not to their sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.checks.contract.wording import SIMILAR
from gradverify.checks.wording import told_apart
from gradverify.core.backward.batched_vjp import asked_with
from gradverify.core.backward.vjps import row
from gradverify.core.decide.tolerance import NEGLIGIBLE
from gradverify.core.jacobians import Investigation, whole
from gradverify.core.whole.evidence import Whole
from gradverify.result import Finding, Method, Verdict

_NOISE = 8.0  # times the noise of outputs that are rounded to fewer digits on the way
_LEAST = 2.0  # times the smallest number there is
_ROUNDINGS = 16.0  # of the largest output, that may stand in place of what cancels
_NOTHING = 1e-9  # what an output may move by at most where all that it is made of cancels


def used_together(found: Investigation, least: float = 0.0) -> Iterator[Finding]:
    """Accuse backward by every input whose gradient is not what its rows add up to; costs a vjp or two.

    By no less than `least` of the largest entry. Raises EvaluationError.
    """
    known = whole(found) if found.method is Method.DENSE else None
    if known is None or not known.claimed.numel():
        return
    random, heard = found.backward.heard
    ones = torch.ones_like(random)
    for cotangent, answer, asked in (
        (ones, row(found.backward, ones), "1 for every output, as y.sum() sends it,"),
        (random, heard, "a random cotangent"),
    ):
        wrong = _off(found, known, cotangent, answer, least)
        if bool(wrong.any()):
            wrong &= _off(found, known, cotangent, answer, max(least, _rounded(found)))
        again = row(found.backward, cotangent) if bool(wrong.any()) else answer
        if bool((_off(found, known, cotangent, again, least) & wrong).any()):
            yield from _accused(found, known, cotangent, answer, wrong, asked)
            return


def _rounded(found: Investigation) -> float:
    """Return the part of a gradient in which it need not be linear, as it rounds what it gets to fewer digits."""
    if not found.sampled.narrow():
        return 0.0
    share = found.measured.noise.level / found.sampled.size
    return _NOISE * float(share.nan_to_num(0.0, 0.0, 0.0).amax())


def _off(found: Investigation, known: Whole, cotangent: Tensor, answer: Tensor, least: float) -> Tensor:
    """Tell which coordinates get something else than the rows add up to, (n,) bool.

    Rounding aside, and what is of no consequence: a softmax far out forgets terms of 1e-22 in one case and not another.
    A sum may be beyond the largest number of its precision, and rows below the smallest.
    """
    weights = cotangent.to(known.claimed.device)
    terms = weights.abs() @ known.claimed.abs()
    apart = (answer.to(known.claimed.device) - weights @ known.claimed).abs()
    wrong = torch.zeros_like(apart, dtype=torch.bool)
    for block in known.inputs:
        mine = block.coordinates
        limits = torch.finfo(found.backward.problem.primals[block.tensor].tensor.dtype)
        eps, sizes = limits.eps, terms[mine]
        finite = sizes.isfinite()
        largest = float(sizes[finite].max()) if bool(finite.any()) else 0.0
        step, size = found.measured.lengths.step[mine], found.sampled.size.amax()
        negligible = (NEGLIGIBLE * size).clamp(min=_NOTHING) / step + _ROUNDINGS * eps * size / step.clamp(max=1.0)
        negligible += _LEAST * len(weights) * limits.smallest_normal * eps  # which every row may have lost
        wrong[mine] = finite & ~(apart[mine] <= max(eps**SIMILAR, least) * largest + negligible)
    return wrong & ~answer.to(wrong.device).isinf()


def _accused(
    found: Investigation, known: Whole, cotangent: Tensor, answer: Tensor, wrong: Tensor, asked: str
) -> Iterator[Finding]:
    expected = cotangent.to(known.claimed.device) @ known.claimed
    for block in known.inputs:
        mine = wrong[block.coordinates]
        if not bool(mine.any()):
            continue
        apart = (answer[block.coordinates].to(expected.device) - expected[block.coordinates]).abs()
        place = int(torch.where(mine, apart.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
        got, sum_ = told_apart(float(answer[block.coordinates][place]), float(expected[block.coordinates][place]))
        index = ", ".join(map(str, block.index(place)))
        text = (
            f"backward is not linear: to {asked} it says {got} by {block.name}[{index}], where its answers to single "
            f"outputs{_as_asked(found)} add up to {sum_}"
        )
        yield Finding(code="GV301", verdict=Verdict.FAIL, wrt=block.name, message=text, total=int(mine.sum()))


def _as_asked(found: Investigation) -> str:
    """Return what the answer to a single output is multiplied by, where it was not asked with a cotangent of 1."""
    unit = asked_with(found.backward)
    return "" if unit == 1.0 else f", times {1 / unit:g},"
