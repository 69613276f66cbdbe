"""GV206: a backward whose own derivative by the inputs is not symmetric, and so the gradient of no function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import row
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.estimate.directional import slope
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler
from gradverify.core.jacobians import Investigation
from gradverify.core.model.generators import scattered_from
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_DIRECTIONS = 3
_STEPS = (2.0**-9, 2.0**-13)  # first ones along a direction, relative to the length scale
_ROUNDING, _UNITS = 1e-6, 1e3  # of a sum of products beside their sizes; and in units of the inputs' own rounding
_CANCELLED = 2048.0  # such units, of what may have cancelled inside


def asymmetric(first: Repeatable, second: Investigation, seed: int) -> Iterator[Finding]:
    """Remark on a vjp that is, for its fixed cotangents, the gradient of no function of the inputs.

    Asks p·(H q) = q·(H p) of three random directions and the entries that were compared; what differs there is asked of
    differences too, which alone decide: they tell backward as it is from what autograd makes of its derivative. Says
    nothing where user code raises.
    """
    directions = _directions(second.measured, seed)
    asked = _Asked(second=second, directions=directions, rounding=_rounding(first.sampled, second.measured))
    try:
        found = _worst(asked) if _suspicious(asked) else None
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
    """A vjp compared, the directions it is asked about, and what may be rounding."""

    second: Investigation
    directions: Tensor  # (k, n), in which every input moves by as much of its own size
    rounding: float  # of a product p·(H q), by what cancels inside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """The same entry of a Hessian seen from both its sides."""

    one: float
    other: float
    bar: float
    allowed: float


def _directions(second: MeasuredProblem, seed: int) -> Tensor:
    """Return random directions in which every input moves by as much of its own size; (k, n)."""
    size = second.sampled.value.numel()  # the gradient has the coordinates of the inputs, cotangents come after them
    return scattered_from(second.lengths.step[:size].repeat(_DIRECTIONS), seed + 6).view(_DIRECTIONS, size)


def _rounding(first: Sampler, second: MeasuredProblem) -> float:
    """Return what may be left of terms that cancel: of the size of what is differentiated, or of its first change."""
    size = second.sampled.value.numel()
    cotangents = second.sampled.point[size:]
    largest = first.size.max() if first.size.numel() else 0.0
    value = cotangents.abs().sum() * largest
    change = (second.sampled.value.abs() * second.lengths.step[:size]).sum()
    return _CANCELLED * second.sampled.eps * float(value + change)


def _suspicious(asked: _Asked) -> bool:
    """Tell whether what autograd makes of the second derivative is not symmetric."""
    values = _claimed(asked.second, asked.directions)
    pairs = _pairs(asked, Estimate(value=values, bar=torch.zeros_like(values)))
    return any(abs(pair.one - pair.other) > pair.allowed for pair in pairs)


def _claimed(second: Investigation, directions: Tensor) -> Tensor:
    """Return what backward claims of directions, (k, n): from the entries compared or, where none are kept, by vjps."""
    size = directions.shape[1]
    if not second.comparison.parts:
        return torch.stack([row(second.backward, direction)[:size] for direction in directions])
    found = directions.new_zeros(len(directions), len(second.sampled.point))
    for part in second.comparison.parts:
        mine = torch.where(part.column_of >= 0, part.claimed * directions.unsqueeze(1), 0.0)
        found.index_add_(1, part.column_of.clamp(min=0).reshape(-1), mine.flatten(1))
    return found[:, :size]


def _worst(asked: _Asked) -> _Pair | None:
    """Return the pair that differs most by differences, None where they do not bear it out at both steps."""
    measured, directions = asked.second.measured, asked.directions
    sampled, noise, step = measured.sampled, measured.noise, measured.lengths.step
    still = torch.zeros_like(step[directions.shape[1] :])  # the cotangents
    found: list[_Pair] = []
    for first in _STEPS:
        moved = [torch.cat([direction, still]) for direction in (*directions, directions.sum(dim=0))]
        *sides, total = (slope(sampled, noise, direction, first) for direction in moved)
        along = Estimate(
            value=torch.stack([side.value for side in sides]), bar=torch.stack([side.bar for side in sides])
        )
        if not _adds_up(along, total):
            return None
        pairs = _pairs(asked, along)
        found.append(max(pairs, key=lambda pair: abs(pair.one - pair.other) / max(pair.allowed, _TINY)))
    return found[-1] if all(abs(pair.one - pair.other) > pair.allowed for pair in found) else None


_TINY = torch.finfo(torch.float64).tiny


def _adds_up(along: Estimate, total: Estimate) -> bool:
    """Tell whether derivatives along directions add up to that along their sum, as they do where there is a Hessian."""
    allowed = BAR_FACTOR * (along.bar.sum(dim=0) + total.bar) + _ROUNDING * along.value.abs().sum(dim=0)
    return bool(((along.value.sum(dim=0) - total.value).abs() <= allowed).all())


def _pairs(asked: _Asked, along: Estimate) -> list[_Pair]:
    """Return p·(H q) and q·(H p) of every two directions; `along` has H of each of them, (k, n)."""
    relative = max(_ROUNDING, _UNITS * asked.second.sampled.eps)
    size, ones = asked.directions.abs(), asked.directions @ along.value.T
    bars, terms = size @ along.bar.T, size @ along.value.abs().T
    bar = bars + bars.T
    allowed = (BAR_FACTOR * bar + relative * (terms + terms.T) + asked.rounding).tolist()
    products, bounds = ones.tolist(), bar.tolist()
    return [
        _Pair(one=products[p][q], other=products[q][p], bar=bounds[p][q], allowed=allowed[p][q])
        for p, q in combinations(range(len(size)), 2)
    ]
