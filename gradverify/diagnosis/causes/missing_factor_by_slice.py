"""Missing factor per slice: each row, channel or other slice is multiplied by a statistic, such as its norm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.block.relation import Ratios, ratios
from gradverify.diagnosis.block.structure import broadcast_along, is_elementwise
from gradverify.diagnosis.block.tensors_along_axis import tensors_along
from gradverify.diagnosis.causes.missing_factor import MISSING_FACTOR
from gradverify.diagnosis.naming.constants import known_constant
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import share_text
from gradverify.evidence import Diagnosis, Evidence

_MIN_DISTINCT = 2  # distinct factors: a single one is a constant factor
_MIN_AGREEING = 4  # sampled entries beyond one per slice: fewer could agree by chance
_MIN_SLICES = 3  # slices required to recognise a statistic
_NEAR = 1e-4  # relative tolerance: an eps may be added to a statistic before the division
_MAX_DIMENSIONS = 4  # dimensions of which all subsets are tried

_Statistic = tuple[str, Callable[[Tensor], Tensor]]  # name and function (slices, members) -> (slices,)
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
    """A power with which a statistic may enter as a factor."""

    exponent: int
    form: str
    predicate: str  # "too many", or "is missing"


_POWERS = (
    _Power(exponent=1, form="{}", predicate="too many"),
    _Power(exponent=-1, form="{}", predicate="is missing"),
    _Power(exponent=2, form="{} squared", predicate="too many"),
    _Power(exponent=-2, form="{} squared", predicate="is missing"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The claims as a multiple of numeric, and the interpretation."""

    multiple: str  # numeric × the norm of x
    interpretation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partition:
    """A partition of one axis of the Jacobian into slices with one factor each."""

    axis: Axis
    kept: tuple[int, ...]  # dimensions on whose indices the factor depends
    label: Tensor  # (k,) index of the slice of each coordinate
    factor: Tensor  # (slices,) NaN if all entries of the slice are zero
    wrong: Tensor  # (slices,) bool: with a wrong entry


def statistic_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times, or over, a statistic of each row, channel or other slice."""
    sample = ratios(seen)
    axes = (Axis.INPUT,) if is_elementwise(seen) else (Axis.INPUT, Axis.OUTPUT)
    for axis in axes:
        for partition in _partitions(seen, axis, sample):
            words = _statistic_words(seen.block, partition)
            share = None if words is None else _share(seen, partition)
            if words is not None and share is not None:
                location = f"in {_slice_words(block_along(seen.block, axis), partition.kept)}{share_text(share)}"
                text = f"analytic = {words.multiple} {location}: {words.interpretation}"
                return Diagnosis(cause=MISSING_FACTOR, explanation=text, share=share)
    return None


def _share(seen: BlockEntries, partition: _Partition) -> float | None:
    factor = partition.factor.nan_to_num(1.0)[partition.label]
    return explained_share(seen, seen.numeric * broadcast_along(partition.axis, factor), float(factor.abs().max()))


def _partitions(seen: BlockEntries, axis: Axis, sample: Ratios) -> Iterator[_Partition]:
    """Yield the partitions that agree with the sampled entries, fewest slices first."""
    shape = block_along(seen.block, axis).shape
    nontrivial = [dimension for dimension, size in enumerate(shape) if size > 1][:_MAX_DIMENSIONS]
    places = sample.columns if axis is Axis.INPUT else sample.rows
    subsets = [kept for count in range(1, len(nontrivial)) for kept in combinations(nontrivial, count)]
    for kept in sorted(subsets, key=lambda dimensions: total(tuple(shape[place] for place in dimensions))):
        label = _labels(shape, kept, seen.numeric.device)
        slice_count = total(tuple(shape[place] for place in kept))
        if _is_constant_by_slice(sample, label[places], slice_count):
            wrong = torch.zeros(slice_count, dtype=torch.bool, device=label.device)
            wrong[label[seen.wrong.any(1 - axis.value)]] = True
            factor = _factors(seen, axis, label, slice_count)
            yield _Partition(axis=axis, kept=kept, label=label, factor=factor, wrong=wrong)


def _labels(shape: tuple[int, ...], kept: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the index of the slice of each coordinate, (k,)."""
    kept_shape = [size if place in kept else 1 for place, size in enumerate(shape)]
    return torch.arange(total(tuple(kept_shape)), device=device).view(kept_shape).expand(shape).reshape(-1)


def _is_constant_by_slice(sample: Ratios, label: Tensor, slice_count: int) -> bool:
    """True if the sampled ratios are equal within each slice, differ between slices, and are numerous enough."""
    unset = sample.values.new_full((slice_count,), torch.inf)
    low = unset.scatter_reduce(0, label, sample.values, "amin")
    high = (-unset).scatter_reduce(0, label, sample.values, "amax")
    sampled = low < torch.inf
    tolerance = 2 * float(sample.tolerance.median()) if len(label) else 0.0
    if len(label) - int(sampled.sum()) < _MIN_AGREEING or bool(((high - low) > tolerance * high.abs())[sampled].any()):
        return False
    return (
        int((high[sampled].sort().values.diff() > 10 * tolerance * high[sampled].abs().max()).sum()) + 1
        >= _MIN_DISTINCT
    )


def _factors(seen: BlockEntries, axis: Axis, label: Tensor, slice_count: int) -> Tensor:
    """Return the ratio claimed / numeric at the largest entry of each slice, (slices,)."""
    across = 1 - axis.value
    size = seen.numeric.abs().masked_fill(seen.zero, 0.0)
    largest, place = size.max(dim=across)
    index = place.unsqueeze(across)
    ratio = (seen.claimed.gather(across, index) / seen.numeric.gather(across, index)).squeeze(across)
    best = size.new_zeros(slice_count).scatter_reduce(0, label, largest, "amax")
    is_best = (largest == best[label]) & (largest > 0)
    factor = size.new_full((slice_count,), torch.nan)
    factor[label[is_best]] = ratio[is_best]
    return factor


def _statistic_words(evidence: Evidence, partition: _Partition) -> _Words | None:
    """Return the wording for factors that are a power of a statistic of a tensor; None if they are not."""
    known = torch.isfinite(partition.factor)
    if int(known.sum()) < _MIN_SLICES:
        return None
    order = partition.label.argsort(stable=True)
    tensors = [tensor for tensor in tensors_along(evidence, partition.axis) if not tensor.where]
    members_by_name = [(tensor.name, tensor.values[order].view(len(partition.factor), -1)[known]) for tensor in tensors]
    for match in (_match_one, _match_constant):  # equal first: a root mean square is also a constant times a norm
        for (tensor_name, members), (name, statistic), power in product(members_by_name, _STATISTICS, _POWERS):
            values = statistic(members)
            constant_text = match(partition.factor[known] / values**power.exponent)
            if constant_text is not None and _differ(values[partition.wrong[known]]):
                description = power.form.format(f"the {name} of {tensor_name}")
                multiple = f"{constant_text}numeric {'×' if power.exponent > 0 else '/'} {description}"
                return _Words(multiple=multiple, interpretation=f"a factor of {description} {power.predicate}")
    return None


def _differ(values: Tensor) -> bool:
    """True if not all values (k,) are the same: a statistic that is one number where errors are explains none."""
    return bool(((values - values[:1]).abs() > _NEAR * values.abs()).any())


def _match_one(quotient: Tensor) -> str | None:
    """Return "" if the quotients (k,) are all 1, else None."""
    return "" if bool(((quotient - 1.0).abs() <= _NEAR).all()) else None


def _match_constant(quotient: Tensor) -> str | None:
    """Return "-" or "1/2 × " if the quotients (k,) are all -1 or one known constant, else None."""
    median = float(quotient.median())
    if median == 0 or not bool(((quotient - median).abs() <= _NEAR * abs(median)).all()):
        return None
    if abs(median + 1.0) <= _NEAR:
        return "-"
    known = known_constant(median, _NEAR, ())
    return None if known is None else f"{'-' if median < 0 else ''}{known.text} × "


def _slice_words(block: Block, kept: tuple[int, ...]) -> str:
    if len(block.shape) == 2:
        return f"each {('row', 'column')[kept[0]]} of {block.name}"
    dimensions = " and ".join(map(str, kept))
    return f"each index along dimension{'s' if len(kept) > 1 else ''} {dimensions} of {block.name}"
