"""Every slice of a tensor is multiplied by a number of its own: a norm, a deviation or a sum is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import laid
from gradverify.diagnosis.block.ratios import Ratios, ratios
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise, over
from gradverify.diagnosis.causes.scaled import MISSING_FACTOR
from gradverify.diagnosis.naming.constants import recognise
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import part

_SEVERAL = 2  # different factors; one alone is a constant
_SURPLUS = 4  # entries that agree with another one of their slice: that many are no coincidence
_TOLD = 3  # slices from which a statistic is recognised
_NEAR = 1e-4  # relative: a statistic may have something small added to it, so that nothing is divided by zero
_DIMENSIONS = 4

_Statistic = tuple[str, Callable[[Tensor], Tensor]]  # of the members of every slice, (slices, members) -> (slices,)
_STATISTICS: tuple[_Statistic, ...] = (
    ("norm", lambda t: t.norm(dim=1)),
    ("sum", lambda t: t.sum(dim=1)),
    ("mean", lambda t: t.mean(dim=1)),
    ("root mean square", lambda t: t.square().mean(dim=1).sqrt()),
    ("standard deviation", lambda t: t.std(dim=1, correction=0)),
    ("standard deviation (by n - 1)", lambda t: t.std(dim=1)),
    ("sum of magnitudes", lambda t: t.abs().sum(dim=1)),
    ("largest entry", lambda t: t.amax(dim=1)),
    ("sum of exponentials", lambda t: t.exp().sum(dim=1)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Power:
    """How a statistic may enter."""

    exponent: int
    form: str
    much: str  # "too many", or "is missing"


_POWERS = (
    _Power(exponent=1, form="{}", much="too many"),
    _Power(exponent=-1, form="{}", much="is missing"),
    _Power(exponent=2, form="{} squared", much="too many"),
    _Power(exponent=-2, form="{} squared", much="is missing"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """What the claims are, and what that says."""

    multiple: str  # numeric × the norm of x
    reading: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slices:
    """A way to cut one side of a Jacobian into slices that have a factor each."""

    axis: Axis
    kept: tuple[int, ...]  # the dimensions that the factor goes by
    label: Tensor  # (k,) the slice of each coordinate
    factor: Tensor  # (slices,) NaN where nothing tells it


def statistic_by_slice(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The claimed entries are the numeric ones times, or over, a statistic of each row, channel or other slice."""
    sample = ratios(seen)
    axes = (Axis.INPUT,) if is_elementwise(evidence, seen) else (Axis.INPUT, Axis.OUTPUT)
    for axis in axes:
        for found in _cut(evidence, seen, axis, sample):
            words = _named(evidence, found)
            share = None if words is None else _share(seen, found)
            if words is not None and share is not None:
                where = f"in {_each(side(evidence, axis), found.kept)}{part(share)}"
                text = f"analytic = {words.multiple} {where}: {words.reading}"
                return Diagnosis(cause=MISSING_FACTOR, explanation=text, share=share)
    return None


def _share(seen: Seen, found: _Slices) -> float | None:
    factor = found.factor.nan_to_num(1.0)[found.label]
    return share_of(seen, seen.numeric * over(found.axis, factor), float(factor.abs().max()))


def _cut(evidence: Evidence, seen: Seen, axis: Axis, sample: Ratios) -> Iterator[_Slices]:
    """Yield the ways to cut that the sampled entries agree with, the fewest slices first."""
    shape = side(evidence, axis).shape
    long = [dimension for dimension, size in enumerate(shape) if size > 1][:_DIMENSIONS]
    places = sample.columns if axis is Axis.INPUT else sample.rows
    ways = [kept for count in range(1, len(long)) for kept in combinations(long, count)]
    for kept in sorted(ways, key=lambda dimensions: total(tuple(shape[place] for place in dimensions))):
        label = _labels(shape, kept, seen.numeric.device)
        slices = total(tuple(shape[place] for place in kept))
        if _agrees(sample, label[places], slices):
            yield _Slices(axis=axis, kept=kept, label=label, factor=_factors(seen, axis, label, slices))


def _labels(shape: tuple[int, ...], kept: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the number of the slice that each coordinate is in, (k,)."""
    own = [size if place in kept else 1 for place, size in enumerate(shape)]
    return torch.arange(total(tuple(own)), device=device).view(own).expand(shape).reshape(-1)


def _agrees(sample: Ratios, label: Tensor, slices: int) -> bool:
    """Tell whether all ratios of a slice are one number, not the same in all, and often enough."""
    fill = sample.values.new_full((slices,), torch.inf)
    low = fill.scatter_reduce(0, label, sample.values, "amin")
    high = (-fill).scatter_reduce(0, label, sample.values, "amax")
    told = low < torch.inf
    tolerance = 2 * float(sample.tolerance.median()) if len(label) else 0.0
    if len(label) - int(told.sum()) < _SURPLUS or bool(((high - low) > tolerance * high.abs())[told].any()):
        return False
    return int((high[told].sort().values.diff() > 10 * tolerance * high[told].abs().max()).sum()) + 1 >= _SEVERAL


def _factors(seen: Seen, axis: Axis, label: Tensor, slices: int) -> Tensor:
    """Return the factor of each slice by its largest entry, (slices,)."""
    across = 1 - axis.value
    size = seen.numeric.abs().masked_fill(seen.zero, 0.0)
    largest, place = size.max(dim=across)
    pick = place.unsqueeze(across)
    ratio = (seen.claimed.gather(across, pick) / seen.numeric.gather(across, pick)).squeeze(across)
    best = size.new_zeros(slices).scatter_reduce(0, label, largest, "amax")
    telling = (largest == best[label]) & (largest > 0)
    factor = size.new_full((slices,), torch.nan)
    factor[label[telling]] = ratio[telling]
    return factor


def _named(evidence: Evidence, found: _Slices) -> _Words | None:
    """Return what the factors are of a tensor, None where they are nothing that is known."""
    told = torch.isfinite(found.factor)
    if int(told.sum()) < _TOLD:
        return None
    order = found.label.argsort(stable=True)
    whole = [each for each in laid(evidence, found.axis) if not each.where]
    told_of = [(each.name, each.values[order].view(len(found.factor), -1)[told]) for each in whole]
    for constant in (_none, _constant):  # a root mean square is a norm too, but for a number
        for (tensor, members), (name, statistic), power in product(told_of, _STATISTICS, _POWERS):
            times = constant(found.factor[told] / statistic(members) ** power.exponent)
            if times is not None:
                what = power.form.format(f"the {name} of {tensor}")
                multiple = f"{times}numeric {'×' if power.exponent > 0 else '/'} {what}"
                return _Words(multiple=multiple, reading=f"a factor of {what} {power.much}")
    return None


def _none(quotient: Tensor) -> str | None:
    """Return "" where the quotient is one, None elsewhere."""
    return "" if bool(((quotient - 1.0).abs() <= _NEAR).all()) else None


def _constant(quotient: Tensor) -> str | None:
    """Return "-", or "1/2 × ", where the quotient is one known number that is not one; None elsewhere."""
    middle = float(quotient.median())
    if middle == 0 or not bool(((quotient - middle).abs() <= _NEAR * abs(middle)).all()):
        return None
    if abs(middle + 1.0) <= _NEAR:
        return "-"
    known = recognise(middle, _NEAR, ())
    return None if known is None else f"{'-' if middle < 0 else ''}{known.text} × "


def _each(block: Block, kept: tuple[int, ...]) -> str:
    if len(block.shape) == 2:
        return f"each {('row', 'column')[kept[0]]} of {block.name}"
    dimensions = " and ".join(map(str, kept))
    return f"each index along dimension{'s' if len(kept) > 1 else ''} {dimensions} of {block.name}"
