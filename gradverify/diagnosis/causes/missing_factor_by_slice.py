"""Missing factor per slice: each row, channel or other slice is multiplied by a statistic, such as its norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.structure import axes_of
from gradverify.diagnosis.causes.missing_factor import Form, both_ways, first_match
from gradverify.diagnosis.naming.variables import Axis, Variable, block_along
from gradverify.diagnosis.naming.wording import dimensions_text, first
from gradverify.evidence import Diagnosis

_NEAR = 1e-4  # relative tolerance: an eps may be added to a statistic before the division
_MAX_DIMENSIONS = 4  # dimensions of which all subsets are tried

# From the members of each slice (slices, members) to a number of each (slices,).
_STATISTICS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
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

_FORMS = (*both_ways("{0}", torch.clone), *both_ways("{0} squared", torch.square))


def statistic_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect claims that are numeric times, or over, a statistic of each row, channel or other slice."""
    return first(
        _first_match(seen, axis, kept)
        for axis in axes_of(seen)
        for kept in _slicings(block_along(seen.block, axis).shape)
    )


def _slicings(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the choices of dimensions on whose indices a factor may depend, fewest slices first."""
    nontrivial = [dimension for dimension, size in enumerate(shape) if size > 1][:_MAX_DIMENSIONS]
    subsets = [kept for count in range(1, len(nontrivial)) for kept in combinations(nontrivial, count)]
    return sorted(subsets, key=lambda dimensions: total(tuple(shape[place] for place in dimensions)))


def _first_match(seen: BlockEntries, axis: Axis, kept: tuple[int, ...]) -> Diagnosis | None:
    """Return the diagnosis of the first statistic that fits, with one slice of a tensor per index along `kept`."""
    block = block_along(seen.block, axis)

    def words(statistic: Variable, form: Form) -> tuple[str, str]:
        name = form.text(statistic.name)
        return f"{{}} {'/' if form.is_missing else '×'} {name}", form.interpretation(name)

    where = f" in {_slice_words(block, kept)}"
    return first_match(seen, _statistics(seen, axis, kept), _FORMS, words, accuracy=_NEAR, where=where)


def _statistics(seen: BlockEntries, axis: Axis, kept: tuple[int, ...]) -> Iterator[Variable]:
    """Yield the statistics of each slice of each tensor, with one slice per index along `kept`."""
    block = block_along(seen.block, axis)
    sizes = [size if place in kept else 1 for place, size in enumerate(block.shape)]
    label = torch.arange(math.prod(sizes), device=seen.block.device).view(sizes).expand(block.shape).reshape(-1)
    order = label.argsort(stable=True)
    tensors = [tensor for tensor in seen.tensors_along(axis) if not tensor.where]
    for tensor in tensors:
        members = tensor.values[order].view(math.prod(sizes), -1)
        for name, statistic in _STATISTICS:
            yield Variable(name=f"the {name} of {tensor.name}", axis=axis, values=statistic(members)[label])


def _slice_words(block: Block, kept: tuple[int, ...]) -> str:
    if len(block.shape) == 2:
        return f"each {('row', 'column')[kept[0]]} of {block.name}"
    return f"each index along {dimensions_text(kept)} of {block.name}"
