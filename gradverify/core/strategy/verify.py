"""A sparsity pattern is put to the test: compressed columns and vjps compared with random combinations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, row
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import ColumnGroups, by_column, of_columns, single_columns
from gradverify.core.estimate.directional import ROUNDING, differs_closer_by
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate, finest_noise
from gradverify.core.estimate.stencil import sample
from gradverify.core.forward.sampler import along
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import portion, portions
from gradverify.core.strategy.structure import Structure, confined_dimensions

_LAST_DIGITS = 2.0**-46  # of a product
_ULPS = 64.0  # of the inputs' own dtype, where that is coarser
_FAINT = 1e-4  # of the largest sum: what rounding elsewhere may leave in a sum of nothing
_NUDGE = 2.0**-8  # how far they move, relative to the length scale
_CONFIRMED = 6  # accused coordinates that are moved alone


def claims_hold(backward: Backward, column_groups: ColumnGroups, claimed: Tensor, seed: int) -> bool:
    """Tell whether the claimed entries, and no others, make up backward's answer to random cotangents.

    Of coordinates with a claim that is no number, sums say nothing. The second cotangent gives every row the same
    weight, so that a stray entry is seen beside its own row, however small that is beside others.
    """
    size = claimed.abs().nan_to_num_(0.0, 0.0, 0.0)
    weights = size.amax(dim=0) if len(size) > 1 else size[0]
    weights.masked_fill_(weights == 0, 1.0).reciprocal_()
    rounding = max(ROUNDING, _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals))
    if not _claims_hold(column_groups, claimed, *backward.heard, rounding):
        return False
    cotangent = scattered(weights, torch.Generator().manual_seed(seed + 1))
    return _claims_hold(column_groups, claimed, cotangent, row(backward, cotangent), rounding)


def each_by_its_own(backward: Backward, claimed: Tensor) -> bool:
    """Tell whether backward's first answer is the claims times the cotangent, to the last digits.

    The claims (M, m) are those on the entries of M inputs. Then no second cotangent need be asked: where a claim is
    what a cotangent of ones has answered, whatever comes from other cotangents has come with other weights.
    """
    cotangent, answer = backward.heard
    cotangent, answers = cotangent.to(claimed.device), answer.view_as(claimed)
    parts = portions(cotangent)
    return all(_is_product(answers[:, some], claimed[:, some] * cotangent[some]) for some in parts)


def differences_hold(context: JudgingContext, compressed: CompressedJacobian, seed: int) -> bool:
    """Tell whether the measured entries, and no others, make up the differences along random directions."""
    if has_unexpected_entries(compressed):
        return False
    generator = torch.Generator().manual_seed(seed + 2)
    direction = scattered(context.lengths.step, generator)
    total, judged = jvp_of(compressed, direction), are_smooth(compressed)
    return not any_set(differs_closer_by(context.sampled, context.noise, direction, total, judged))


def pattern_holds(context: JudgingContext, compressed: CompressedJacobian, structure: Structure, seed: int) -> bool:
    """Tell whether outputs stay bit for bit the same while coordinates move that should not reach them.

    Asked where outputs with a kink cannot be added up, so that `differences_hold` has nothing to say of them. First all
    coordinates move but those that own such an output; then, dimension by dimension, the slices whose number has a
    certain bit, and those that have it not, which keeps every two slices apart once.
    """
    rough = ~are_smooth(compressed)
    if not any_set(rough):
        return True
    generator = torch.Generator().manual_seed(seed + 3)
    column_of = context.column_groups.column_of[:, rough]
    mine = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    mine[column_of[column_of >= 0]] = True
    return all(_untouched(context, moving, generator) for moving in (~mine, *_halves(context, structure)))


def accusations_hold(context: JudgingContext, compressed: CompressedJacobian) -> bool:
    """Tell whether accused coordinates, moved alone, give the same derivatives as moved together with others."""
    accused = accused_columns(compressed, _CONFIRMED)
    if not len(accused):
        return True
    alone = single_columns(context.sampled.point.numel(), context.sampled.value.numel(), context.sampled.point.device)
    samples = sample(context.sampled, alone, accused, richardson.steps(context.lengths))
    found = richardson.extrapolate(samples, finest_noise(context.noise, samples))
    together = columns_of(compressed, accused)
    apart = (found.value - together.value).abs() > BAR_FACTOR * (found.bar + together.bar)
    return not any_set(apart & torch.isfinite(found.bar) & torch.isfinite(together.bar))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedJacobian:
    """All entries of some shared moves, each (M, m)."""

    column_groups: ColumnGroups
    numeric: Tensor
    bar: Tensor
    code: Tensor  # see Code


def compress(column_groups: ColumnGroups, parts: Sequence[Judged]) -> CompressedJacobian:
    """Put judged chunks of all moves, in order, together."""
    if len(parts) == 1:
        (only,) = parts
        return CompressedJacobian(column_groups=column_groups, numeric=only.numeric, bar=only.bar, code=only.code)
    return CompressedJacobian(
        column_groups=column_groups,
        numeric=torch.cat([part.numeric for part in parts]),
        bar=torch.cat([part.bar for part in parts]),
        code=torch.cat([part.code for part in parts]),
    )


def jvp_of(compressed: CompressedJacobian, direction: Tensor) -> Estimate:
    """Return J·direction as the entries give it, with the sum of their bars; (m,)."""
    by = of_columns(compressed.column_groups, direction)
    value, bar = compressed.numeric * by, compressed.bar * by.abs()
    value, bar = value.nan_to_num_(0.0), bar.nan_to_num_(torch.inf)
    if len(value) == 1:
        return Estimate(value=value[0], bar=bar[0])
    return Estimate(value=value.sum(dim=0), bar=bar.sum(dim=0))


def are_smooth(compressed: CompressedJacobian) -> Tensor:
    """Tell for which outputs every entry is known and smooth, so that they can be compressed up; (m,)."""
    return ((compressed.code == Code.MATCH) | (compressed.code == Code.MISMATCH)).all(dim=0)


def has_unexpected_entries(compressed: CompressedJacobian) -> bool:
    """Tell whether an output moved that no coordinate of the move should reach."""
    if compressed.column_groups.direct:
        return False
    lost = (compressed.column_groups.column_of < 0) & (compressed.numeric.abs() > BAR_FACTOR * compressed.bar)
    return any_set(lost)


def accused_columns(compressed: CompressedJacobian, most: int) -> Tensor:
    """Return coordinates with entries that are mismatches, at most so many, spread over all of them; (k,)."""
    hit = (compressed.code == Code.MISMATCH) & (compressed.column_groups.column_of >= 0)
    every: Tensor = torch.unique(compressed.column_groups.column_of[hit])
    return every[:: max(1, len(every) // most)][:most]


def columns_of(compressed: CompressedJacobian, coordinates: Tensor) -> Estimate:
    """Return the columns of the Jacobian that belong to these coordinates, each (k, m)."""
    rows = compressed.column_groups.colour[coordinates]
    own = compressed.column_groups.column_of[rows] == coordinates.unsqueeze(1)
    return Estimate(
        value=torch.where(own, compressed.numeric[rows], 0.0), bar=torch.where(own, compressed.bar[rows], 0.0)
    )


def _is_product(told: Tensor, product: Tensor) -> bool:
    return torch.equal(told, product) or all_set((told - product).abs_() <= product.abs_().mul_(_LAST_DIGITS))


def _claims_hold(
    column_groups: ColumnGroups, claimed: Tensor, cotangent: Tensor, answer: Tensor, rounding: float
) -> bool:
    cotangent = cotangent.to(claimed.device)
    if not column_groups.direct:
        terms = claimed * cotangent
        total = by_column(column_groups, terms)
        off, size = (answer - total).abs_(), total.abs_()
        if _are_rounding(off, size, _largest(size), rounding):  # the terms are larger still
            return True
        size = by_column(column_groups, terms.abs_())
        return _are_rounding(off, size, _largest(size), rounding)
    width = portion(answer)  # every sum has one term
    parts = list(zip(*(torch.split(values, width) for values in (claimed[0], cotangent, answer)), strict=True))
    largest = max(_largest((mine * by).abs_()) for mine, by, _ in parts)
    return all(
        _are_rounding((told - term).abs_(), term.abs_(), largest, rounding)
        for mine, by, told in parts
        for term in [mine * by]
    )


def _largest(size: Tensor) -> float:
    """Return the largest finite size."""
    largest = float(size.amax()) if size.numel() else 0.0
    return largest if largest < math.inf else float(size.nan_to_num(0.0, 0.0).max())


def _are_rounding(off: Tensor, size: Tensor, largest: float, rounding: float) -> bool:
    """Tell whether sums with terms of such sizes are off by no more than rounding, where they are numbers at all."""
    known = size.isfinite()
    allowed = size.add_(_FAINT * largest).mul_(rounding)
    return all_set((off <= allowed).logical_or_(known.logical_not_()))


def _halves(context: JudgingContext, structure: Structure) -> Iterator[Tensor]:
    """Yield sets of coordinates, (n,) bool: half of the slices of a confined input dimension at a time."""
    for source, dimension in confined_dimensions(structure):
        size = source.shape[dimension]
        shape = [size if axis == dimension else 1 for axis in range(len(source.shape))]
        for bit in range((size - 1).bit_length()):
            for value in (0, 1):
                slices = (torch.arange(size) >> bit) % 2 == value
                moving = torch.zeros(context.sampled.point.shape, dtype=torch.bool)
                place = slice(source.start, source.start + torch.Size(source.shape).numel())
                moving[place] = slices.reshape(shape).expand(source.shape).reshape(-1)
                yield moving.to(context.sampled.point.device)


def _untouched(context: JudgingContext, moving: Tensor, generator: torch.Generator) -> bool:
    displacement = scattered(context.lengths.step * _NUDGE, generator)
    there = along(context.sampled, torch.where(moving, displacement, 0.0))
    reached = (moving[context.column_groups.column_of.clamp(min=0)] & (context.column_groups.column_of >= 0)).any(dim=0)
    return all_set(reached | (there == context.sampled.value) | ~torch.isfinite(context.sampled.value))
