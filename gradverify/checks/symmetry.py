"""GV206: a backward whose own derivative by the inputs is not symmetric, and is thus not the gradient of a function."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.backward.vjps import row
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.estimate.directional import directional_derivative
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler
from gradverify.core.jacobians import Investigation
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_DIRECTIONS = 3
_STEPS = (2.0**-9, 2.0**-13)  # first steps along a direction, relative to the length scale
_ROUNDING, _UNITS = 1e-6, 1e3  # relative error of a sum of products; the same in eps of the inputs
_CANCELLED = 2048.0  # such units, relative to terms that may have cancelled


def asymmetric(first: Repeatable, second: Investigation, seed: int) -> Iterator[Finding]:
    """Yield a remark on a vjp that is, for its fixed cotangents, not the gradient of a function of the inputs.

    Compares p·(H q) with q·(H p) for three random directions, first with H from autograd, then with H from differences.
    Only the latter decide: they show backward itself, not what autograd makes of its derivative. Yields nothing if user
    code raises.
    """
    directions = _directions(second.measured, seed)
    vjp = _Vjp(second=second, directions=directions, rounding=_rounding(first.sampled, second.measured))
    try:
        found = _worst(vjp) if _suspicious(vjp) else None
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
class _Vjp:
    """A compared vjp, the directions it is tested along, and its rounding error."""

    second: Investigation
    directions: Tensor  # (k, n), in which every input changes by the same part of its size
    rounding: float  # of a product p·(H q), from terms that cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One entry of a Hessian, computed from both sides."""

    one: float
    other: float
    bar: float
    allowed: float


def _directions(second: MeasuredProblem, seed: int) -> Tensor:
    """Return random directions, (k, n), in which every input changes by the same part of its size."""
    size = second.sampled.value.numel()  # the gradient has the coordinates of the inputs, cotangents come after them
    return random_magnitudes_from(second.lengths.step[:size].repeat(_DIRECTIONS), seed + 6).view(_DIRECTIONS, size)


def _rounding(first: Sampler, second: MeasuredProblem) -> float:
    """Return the rounding error left by terms that cancel, as large as the differentiated value or its change."""
    size = second.sampled.value.numel()
    cotangents = second.sampled.point[size:]
    largest = first.size.max() if first.size.numel() else 0.0
    value = cotangents.abs().sum() * largest
    change = (second.sampled.value.abs() * second.lengths.step[:size]).sum()
    return _CANCELLED * second.sampled.eps * float(value + change)


def _suspicious(vjp: _Vjp) -> bool:
    """True if the second derivative by autograd is not symmetric."""
    values = _claimed(vjp.second, vjp.directions)
    pairs = _pairs(vjp, Estimate(value=values, bar=torch.zeros_like(values)))
    return any(abs(pair.one - pair.other) > pair.allowed for pair in pairs)


def _claimed(second: Investigation, directions: Tensor) -> Tensor:
    """Return the claimed H·direction, (k, n): from the compared entries or, if they are not kept, by vjps."""
    size = directions.shape[1]
    if not second.comparison.parts:
        return torch.stack([row(second.backward, direction)[:size] for direction in directions])
    found = directions.new_zeros(len(directions), len(second.sampled.point))
    for part in second.comparison.parts:
        products = torch.where(part.column_of >= 0, part.claimed * directions.unsqueeze(1), 0.0)
        found.index_add_(1, part.column_of.clamp(min=0).reshape(-1), products.flatten(1))
    return found[:, :size]


def _worst(vjp: _Vjp) -> _Pair | None:
    """Return the pair with the largest relative difference, None if differences at both steps do not confirm it."""
    measured, directions = vjp.second.measured, vjp.directions
    sampled, noise, step = measured.sampled, measured.noise, measured.lengths.step
    constant = torch.zeros_like(step[directions.shape[1] :])  # the cotangents
    worst = None
    for first in _STEPS:
        moved = [torch.cat([direction, constant]) for direction in (*directions, directions.sum(dim=0))]
        *sides, total = (directional_derivative(sampled, noise, direction, first) for direction in moved)
        along = Estimate(
            value=torch.stack([side.value for side in sides]), bar=torch.stack([side.bar for side in sides])
        )
        if not _adds_up(along, total):
            return None
        pairs = _pairs(vjp, along)
        worst = max(pairs, key=lambda pair: abs(pair.one - pair.other) / max(pair.allowed, _TINY))
        if abs(worst.one - worst.other) <= worst.allowed:
            return None
    return worst


_TINY = torch.finfo(torch.float64).tiny


def _adds_up(along: Estimate, total: Estimate) -> bool:
    """True if the derivatives along directions add up to that along their sum, as for a Hessian."""
    allowed = BAR_FACTOR * (along.bar.sum(dim=0) + total.bar) + _ROUNDING * along.value.abs().sum(dim=0)
    return bool(((along.value.sum(dim=0) - total.value).abs() <= allowed).all())


def _pairs(vjp: _Vjp, along: Estimate) -> list[_Pair]:
    """Return p·(H q) and q·(H p) for each pair of directions; `along` is H·direction of each, (k, n)."""
    relative = max(_ROUNDING, _UNITS * vjp.second.sampled.eps)
    size, ones = vjp.directions.abs(), vjp.directions @ along.value.T
    bars, terms = size @ along.bar.T, size @ along.value.abs().T
    bar = bars + bars.T
    allowed = (BAR_FACTOR * bar + relative * (terms + terms.T) + vjp.rounding).tolist()
    products, bounds = ones.tolist(), bar.tolist()
    return [
        _Pair(one=products[p][q], other=products[q][p], bar=bounds[p][q], allowed=allowed[p][q])
        for p, q in combinations(range(len(size)), 2)
    ]
