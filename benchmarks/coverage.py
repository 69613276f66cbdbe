"""How often the true error is within the error bar: numeric derivatives of the zoo against exact ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmarks.subject import judge_right, problem_of
from gradverify.arithmetic.unrounded import WIDE
from gradverify.core.backward.vjps import backward_of, jacobian
from gradverify.core.decide.verdict import Code
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from tests.zoo.specimen import Specimen

_EXACT_ULPS = 4.0  # error of the exact value, in eps times the smaller of the largest entries of its row and column
_JUDGED = (Code.MATCH, Code.MISMATCH, Code.EDGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Counts of one specimen's entries by whether the error bar covers the true error, and the bars' widths."""

    subject: str
    judged: int  # entries with a verdict
    outside: int  # judged entries with a true error above the bar
    unjudged: int  # entries with a finite bar that was too wide
    unjudged_outside: int  # unjudged entries with a true error above the bar
    worst: float  # largest true error over bar
    ratios: tuple[float, ...]  # bar over true error, of judged entries with a non-zero value and error


def coverage_of(specimen: Specimen, seed: int) -> Coverage | None:
    """Return the coverage, or None if nothing can be compared."""
    problem = problem_of(specimen, seed)
    tape = record(problem)
    if "random" in specimen.tags or not tape.outputs:
        return None
    without_casts = replace(problem, is_widened=all(primal.tensor.dtype in WIDE for primal in problem.primals))
    exact = jacobian(backward_of(without_casts, record(without_casts), seed))
    if not exact.numel():
        return None
    if specimen.exact is not None:
        exact = specimen.exact(*specimen.inputs(seed)).reshape(exact.shape).to(torch.float64)
    _, judged = judge_right(problem, seed)
    error = (judged.numeric - exact).abs()
    bar = judged.bar + _error_of_exact(exact, _eps(problem))
    code = judged.code
    plain = torch.isin(code, torch.tensor(_JUDGED, dtype=torch.int8)) & torch.isfinite(exact)
    wide = (code == Code.UNDETERMINED) & torch.isfinite(judged.bar) & torch.isfinite(exact)
    nonzero = plain & (exact != 0) & (error > 0)
    return Coverage(
        subject=specimen.name,
        judged=int(plain.sum()),
        outside=int((error > bar)[plain].sum()),
        unjudged=int(wide.sum()),
        unjudged_outside=int((error > bar)[wide].sum()),
        worst=float((error / bar.clamp(min=1e-300))[plain].max()) if bool(plain.any()) else 0.0,
        ratios=tuple((judged.bar / error)[nonzero].tolist()),
    )


def _error_of_exact(exact: Tensor, eps: float) -> Tensor:
    size = exact.abs().nan_to_num(0.0, 0.0, 0.0)
    if not size.numel():
        return size
    return _EXACT_ULPS * eps * torch.minimum(size.amax(0, keepdim=True), size.amax(1, keepdim=True))


def _eps(problem: Problem) -> float:
    """Return the eps of the coarsest input: autograd rounds a gradient to its input's dtype."""
    return max((torch.finfo(primal.tensor.dtype).eps for primal in problem.primals), default=0.0)
