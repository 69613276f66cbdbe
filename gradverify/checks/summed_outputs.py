"""GV301 in gradcheck: a gradient that is right for every single output, and wrong for sums of them.

A small Jacobian is computed row by row, from cotangents with one non-zero entry (which is not 1 if there is one output
only). A backward that clips or normalises its cotangents may be right for each of these and wrong for their sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import amplification
from gradverify.checks.contract.wording import SIMILAR_EXPONENT
from gradverify.checks.wording import distinguishable
from gradverify.core.backward.vjps import Graph, Reuse, flat_vjp, row_cotangent
from gradverify.core.decide.backward_rounding import small_error
from gradverify.core.decide.compare import NEGLIGIBLE
from gradverify.core.jacobians import Investigation
from gradverify.core.model.magnitudes import all_set
from gradverify.core.tuning import SUM_UNITS
from gradverify.errors import EvaluationError
from gradverify.evidence import JacobianPair, jacobian_pair
from gradverify.result import Finding, Method, Verdict

_LEAST = 2.0  # times the smallest positive number, which each row may have lost
_ROUNDINGS = 16.0  # roundings of the largest output: gradient that cancellation may leave
_NOTHING = 1e-9  # largest change of an output whose terms all cancel


def wrong_if_summed(found: Investigation, least: float = 0.0) -> Iterator[Finding]:
    """Yield a fail for every input whose gradient is not the sum of its rows; costs a vjp or two.

    Deviations below `least` times the largest entry are ignored. Raises EvaluationError.
    """
    known = jacobian_pair(found) if found.method is Method.DENSE else None
    if known is None or not known.claimed.numel():
        return
    random, random_vjp = found.backward.known_vjp
    ones = torch.ones_like(random)
    for cotangent, vjp, given in (
        (ones, flat_vjp(found.backward, ones), "1 for every output, as y.sum() sends it,"),
        (random, random_vjp, "a random cotangent"),
    ):
        differs = _off(found, known, cotangent, vjp, least)
        if bool(differs.any()):
            exact = _without_rounding(found, known, cotangent, vjp)
            accepted = _allowed_to_rows(found, cotangent.abs().to(known.claimed.device))
            differs &= _off(found, known, cotangent, exact, least, accepted)
        again = flat_vjp(found.backward, cotangent) if bool(differs.any()) else vjp
        if bool((_off(found, known, cotangent, again, least) & differs).any()):
            yield from _accused(found, known, cotangent, vjp, differs, given)
            return


def _without_rounding(found: Investigation, known: JacobianPair, cotangent: Tensor, vjp: Tensor) -> Tensor:
    """Return the vjp of the same backward in float64, where the difference is small or rounding explains it; (n,)."""
    if not found.sampled.backward_eps:
        return vjp
    in_double = replace(found.backward, problem=found.sampled.problem, graph=Graph(reuse=Reuse.FRESH))
    try:
        exact = flat_vjp(in_double, cotangent)
    except EvaluationError:
        return vjp
    apart = (exact - vjp).abs()
    small = small_error(found.sampled.backward_eps, known.claimed) * float(cotangent.abs().sum())
    rounding = torch.full_like(apart, small)
    if not all_set(apart <= rounding):
        change = amplification(lambda: flat_vjp(in_double, cotangent), exact)
        rounding = torch.maximum(rounding, SUM_UNITS * found.sampled.backward_eps * change)
    return torch.where(apart <= rounding, exact, vjp)


def _off(
    found: Investigation,
    known: JacobianPair,
    cotangent: Tensor,
    vjp: Tensor,
    least: float,
    accepted: Tensor | None = None,
) -> Tensor:
    """Mask of coordinates whose gradient is not the sum of its rows, (n,).

    Errors up to `accepted` (n,) are ignored, and so are rounding and negligible terms: far from its maximum, a softmax
    may drop terms of 1e-22 in one computation and keep them in another. So are sums that overflow in their precision,
    and rows that underflow.
    """
    weights = cotangent.to(known.claimed.device)
    terms = weights.abs() @ known.claimed.abs()
    error = (vjp.to(known.claimed.device) - weights @ known.claimed).abs()
    error = error if accepted is None else (error - accepted).clamp(min=0.0)
    wrong = torch.zeros_like(error, dtype=torch.bool)
    for block in known.inputs:
        columns = block.coordinates
        limits = torch.finfo(found.backward.problem.primals[block.tensor].tensor.dtype)
        eps, sizes = limits.eps, terms[columns]
        finite = sizes.isfinite()
        largest = float(sizes[finite].max()) if bool(finite.any()) else 0.0
        step, size = found.measured.lengths.step[columns], found.sampled.size.amax()
        negligible = (NEGLIGIBLE * size).clamp(min=_NOTHING) / step + _ROUNDINGS * eps * size / step.clamp(max=1.0)
        negligible += _LEAST * len(weights) * limits.smallest_normal * eps  # which every row may have lost
        wrong[columns] = finite & ~(error[columns] <= max(eps**SIMILAR_EXPONENT, least) * largest + negligible)
    return wrong & ~vjp.to(wrong.device).isinf()


def _allowed_to_rows(found: Investigation, weights: Tensor) -> Tensor:
    """Return the weighted sum over the outputs of the errors allowed to the entries of each input, (n,)."""
    total = torch.zeros(found.sampled.point.numel(), dtype=weights.dtype, device=weights.device)
    if (kept := found.comparison.judged) is not None:
        groups, outputs = (kept.column_of >= 0).nonzero(as_tuple=True)
        allowed = weights[outputs] * kept.judged.allowed[groups, outputs]
        total.index_add_(0, kept.column_of[groups, outputs], allowed.nan_to_num(0.0, 0.0, 0.0))
    return total


def _accused(
    found: Investigation, known: JacobianPair, cotangent: Tensor, vjp: Tensor, wrong: Tensor, given: str
) -> Iterator[Finding]:
    expected = cotangent.to(known.claimed.device) @ known.claimed
    for block in known.inputs:
        wrong_here = wrong[block.coordinates]
        if not bool(wrong_here.any()):
            continue
        error = (vjp[block.coordinates].to(expected.device) - expected[block.coordinates]).abs()
        place = int(torch.where(wrong_here, error.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
        got, sum_ = distinguishable(float(vjp[block.coordinates][place]), float(expected[block.coordinates][place]))
        index = ", ".join(map(str, block.index(place)))
        text = (
            f"backward is not linear: to {given} it says {got} by {block.name}[{index}], where its answers to single "
            f"outputs{_factor_of_rows(found)} add up to {sum_}"
        )
        yield Finding(code="GV301", verdict=Verdict.FAIL, wrt=block.name, message=text, total=int(wrong_here.sum()))


def _factor_of_rows(found: Investigation) -> str:
    """Return the factor of the vjps of single outputs, to go on a message, if their cotangent was not 1."""
    unit = row_cotangent(found.backward)
    return "" if unit == 1.0 else f", times {1 / unit:g},"
