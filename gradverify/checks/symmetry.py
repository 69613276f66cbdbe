"""GV206: a backward whose own derivative by the inputs is not symmetric, and so the gradient of no function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.analytic import reverse, row
from gradverify.core.chance import scattered
from gradverify.core.directional import slope
from gradverify.core.noise import measure
from gradverify.core.samples import BAR_FACTOR, Estimate
from gradverify.core.scale import Scales, scales
from gradverify.core.steady import Steady
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_DIRECTIONS = 3
_STEPS = (2.0**-9, 2.0**-13)  # first ones along a direction, relative to the length scale
_ROUNDING, _UNITS = 1e-6, 1e3  # of a sum of products beside their sizes; and in units of the inputs' own rounding
_CANCELLED = 2048.0  # such units, of what may have cancelled inside


def asymmetric(first: Steady, second: Steady, seed: int) -> Iterator[Finding]:
    """Remark on a vjp that is, for its fixed cotangents, the gradient of no function of the inputs.

    Asks p·(H q) = q·(H p) of three random directions, by 5 vjps; what differs there is asked of differences too, which
    alone decide: they tell backward as it is from what autograd makes of its derivative. Says nothing where user code
    raises.
    """
    lengths = scales(second.sampled)
    directions = _directions(second, lengths, seed)
    asked = _Asked(second=second, lengths=lengths, directions=directions, rounding=_rounding(first, second, lengths))
    try:
        found = _worst(asked, seed) if _suspicious(asked, seed) else None
    except EvaluationError:
        return
    if found is not None:
        text = (
            "backward is the gradient of no function: for fixed cotangents the derivative H of a gradient by its inputs"
            f" is symmetric, but along two random directions p·(H q) is {found.one:.6g} and q·(H p) {found.other:.6g},"
            f" ± {found.bar:.1g}"
        )
        yield Finding(code="GV206", verdict=Verdict.PASS, message=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A vjp, the directions it is asked about, and what may be rounding."""

    second: Steady
    lengths: Scales
    directions: Sequence[Tensor]  # (n,) each, in which every input moves by as much of its own size
    rounding: float  # of a product p·(H q), by what cancels inside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The same entry of a Hessian seen from both its sides."""

    one: float
    other: float
    bar: float
    allowed: float


def _directions(second: Steady, lengths: Scales, seed: int) -> list[Tensor]:
    """Return random directions in which every input moves by as much of its own size; each (n,)."""
    generator = torch.Generator().manual_seed(seed + 6)
    size = second.sampled.value.numel()  # the gradient has the coordinates of the inputs, cotangents come after them
    return [scattered(lengths.step[:size], generator) for _ in range(_DIRECTIONS)]


def _rounding(first: Steady, second: Steady, lengths: Scales) -> float:
    """Return what may be left of terms that cancel: of the size of what is differentiated, or of its first change."""
    size = second.sampled.value.numel()
    cotangents = second.sampled.point[size:]
    value = float(cotangents.abs().sum() * first.sampled.size.max())
    change = float((second.sampled.value.abs() * lengths.step[:size]).sum())
    return _CANCELLED * _eps(second) * (value + change)


def _eps(second: Steady) -> float:
    return max(torch.finfo(primal.tensor.dtype).eps for primal in second.problem.primals)


def _suspicious(asked: _Asked, seed: int) -> bool:
    """Tell whether what autograd makes of the second derivative is not symmetric."""
    backward = reverse(asked.second.problem, asked.second.tape, seed)
    answers = [row(backward, direction)[: len(direction)] for direction in asked.directions]
    nothing = torch.zeros_like(asked.directions[0])
    sides = [Estimate(value=answer, bar=nothing) for answer in answers]
    return any(abs(pair.one - pair.other) > pair.allowed for pair in _pairs(asked, sides))


def _worst(asked: _Asked, seed: int) -> _Pair | None:
    """Return the pair that differs most by differences, None where they do not bear it out at both steps."""
    sampled, directions, step = asked.second.sampled, asked.directions, asked.lengths.step
    noise = measure(sampled, asked.lengths, seed)
    still = torch.zeros_like(step[len(directions[0]) :])  # the cotangents
    found: list[_Pair] = []
    for first in _STEPS:
        moved = [torch.cat([direction, still]) for direction in (*directions, torch.stack([*directions]).sum(dim=0))]
        *sides, total = (slope(sampled, noise, direction, first) for direction in moved)
        if not _adds_up(sides, total):
            return None
        pairs = _pairs(asked, sides)
        found.append(max(pairs, key=lambda pair: abs(pair.one - pair.other) / max(pair.allowed, _TINY)))
    return found[-1] if all(abs(pair.one - pair.other) > pair.allowed for pair in found) else None


_TINY = torch.finfo(torch.float64).tiny


def _adds_up(sides: Sequence[Estimate], total: Estimate) -> bool:
    """Tell whether derivatives along directions add up to that along their sum, as they do where there is a Hessian."""
    values, bars = torch.stack([side.value for side in sides]), torch.stack([side.bar for side in sides])
    allowed = BAR_FACTOR * (bars.sum(dim=0) + total.bar) + _ROUNDING * values.abs().sum(dim=0)
    return bool(((values.sum(dim=0) - total.value).abs() <= allowed).all())


def _pairs(asked: _Asked, sides: Sequence[Estimate]) -> list[_Pair]:
    relative = max(_ROUNDING, _UNITS * _eps(asked.second))
    found = []
    for (p, along_p), (q, along_q) in combinations(zip(asked.directions, sides, strict=True), 2):
        one, other = p * along_q.value, q * along_p.value
        bar = float((p.abs() * along_q.bar).sum() + (q.abs() * along_p.bar).sum())
        terms = float(one.abs().sum() + other.abs().sum())
        allowed = BAR_FACTOR * bar + relative * terms + asked.rounding
        found.append(_Pair(one=float(one.sum()), other=float(other.sum()), bar=bar, allowed=allowed))
    return found
