"""Kinks that no coordinate axis shows: ties in a sort, norms of differences, maxima over pairs.

At such a point all partial derivatives may exist although the function is not differentiable: directional derivatives
are not additive. Backward returns the derivative of one of the smooth pieces that meet there. So the output of a
mismatch is tested for additivity; if it is not additive, the derivatives at nearby points bound the accepted values
(Clarke's generalised gradient; F. H. Clarke, Optimization and Nonsmooth Analysis, 1983, section 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.directional import ASIDE, at_ranks, directional_derivatives_at
from gradverify.core.decide.subgradients import ABOVE_NOISE
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import sum_by_column, value_of_column
from gradverify.core.forward.sampler import first_cotangent, outputs_near
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.tuning import CLEARLY_ABOVE, CLEARLY_LESS

_COLUMNS = 96  # coordinates that are examined
_DIRECTION_PAIRS = 6  # pairs of random directions tested for additivity
_TEST_STEPS = (2.0**-28, 2.0**-32, 2.0**-36)  # steps of the additivity test, relative to the length scale
_NOT_ADDITIVE = 1e-3  # of the largest derivative: a larger additivity gap, at every step, is not rounding
_ALIKE = 1.5  # factor by which a kink's gap may change from step to step; a gap due to rounding grows by 16
_JUMP_HEIGHT = 2.0**-26  # of the largest output: a jump higher than this is not due to rounding
_RANKS = 48  # ranks among the tied inputs that a coordinate is put at, if many coordinates are examined
_MOST_RANKS = 512  # and if few are
_DISTANCE = 2.0**-26  # of the nearby points, relative to the length scale
_STEP = 2.0**-36  # of the difference quotients there: well inside one smooth piece
_FACTORS = (1.0, 2.0**12, 2.0**20)  # factors of distance and step, for slopes that noise hides at the one before


def excuse_oblique(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Turn mismatches between the derivatives of the pieces that meet at an oblique kink into kinks.

    More pieces may meet there than are examined: entries beyond the limits become undetermined. If some outputs are on
    such a kink, slopes that noise hides at these small steps are measured from farther away.
    """
    length = value_of_column(context.column_groups, chosen, context.lengths.nonzero)
    open_entries = torch.ones_like(judged.kinked)
    for factor in _FACTORS:
        judged, kinked = _examined(context, chosen, judged, open_entries, factor)
        hidden = _noise_effect(context, CLEARLY_ABOVE, length, factor)
        open_entries = (judged.code == Code.MISMATCH) & (judged.error <= hidden)
        if not any_set(kinked) or not any_set(open_entries):
            break
    return judged


def _examined(
    context: JudgingContext, chosen: Tensor, judged: Judged, selected: Tensor, factor: float
) -> tuple[Judged, Tensor]:
    """Examine the mismatches in a mask (C, m), with distances and steps multiplied by `factor`.

    Returns the verdicts and the mask of outputs with a kink, (m,).
    """
    has_several_inputs = (context.column_groups.column_of >= 0).sum(dim=0) > 1
    wrong = selected & (judged.code == Code.MISMATCH) & has_several_inputs
    # A kink that an axis shows may join more pieces than its two, as for differences of sorted inputs.
    large = judged.error > _NOT_ADDITIVE * context.claimed.abs().amax(dim=0)
    accused = wrong & (~judged.kinked | judged.bent & large)
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    accused &= (column_of < first_cotangent(context.sampled)) & claimed.isfinite()  # nan is no slope of a piece
    if not any_set(accused):
        return judged, torch.zeros_like(context.sampled.value, dtype=torch.bool)
    generator = torch.Generator().manual_seed(context.settings.seed)
    kinked = _has_kink(context, generator, factor)
    accused = accused & kinked
    at_kink, columns = torch.zeros_like(accused), torch.unique(column_of[accused])
    not_examined = torch.isin(column_of, columns[_COLUMNS:])
    ranks = min(_MOST_RANKS, max(_RANKS, _RANKS * _COLUMNS // max(1, len(columns))))
    for column in columns[:_COLUMNS].tolist():
        peers = _inputs_of(context, (accused & (column_of == column)).any(dim=0))
        state = generator.get_state()
        low, high = _range_of_slopes(context, column, _neighbours(context, column, generator, peers, ranks), factor)
        if int(peers.sum()) >= ranks:  # the one rank at which this input counts may not have been tried
            not_examined |= (column_of == column) & (low == 0) & (high == 0)
        margin = judged.allowed + _noise_effect(context, ABOVE_NOISE, context.lengths.nonzero[column], factor)
        inside = (claimed >= low - margin) & (claimed <= high + margin) & (high - low > margin)
        found = accused & inside & (column_of == column)
        if any_set(found):  # closer by, smooth variation is smaller, and the slopes of the pieces are the same
            again = torch.Generator()
            again.set_state(state)
            neighbours = _neighbours(context, column, again, peers, ranks)
            near_low, near_high = _range_of_slopes(context, column, neighbours, factor, CLEARLY_LESS * _DISTANCE)
            found &= high - low <= _ALIKE * (near_high - near_low)
        at_kink |= found
    rules = [
        (accused & ~judged.kinked & not_examined, Reason.POSSIBLE_OBLIQUE_KINK),
        (at_kink, Reason.OBLIQUE_KINK),
    ]
    return decide(judged, rules), kinked


def _noise_effect(context: JudgingContext, times: float, length: Tensor, factor: float) -> Tensor:
    """Return the effect of `times` the noise on derivatives of the pieces, for coordinates with these length scales."""
    return times * context.noise.level / (_STEP * factor * length)


def _has_kink(context: JudgingContext, generator: torch.Generator, factor: float) -> Tensor:
    """Mask of outputs whose one-sided directional derivatives are not additive, (m,).

    If many inputs are tied at zero, possibly only the direction of all of them shows it.
    """
    lengths, pairs = context.lengths.nonzero, range(_DIRECTION_PAIRS)
    directions = [(_random_direction(context, generator), _random_direction(context, generator)) for _ in pairs]
    directions.append((lengths, ASIDE * _random_direction(context, generator)))
    steps = [step * factor for step in _TEST_STEPS]
    return torch.stack([_lasting_gaps(context, *pair, steps).any(dim=0) for pair in directions]).any(dim=0)


def _lasting_gaps(context: JudgingContext, one: Tensor, other: Tensor, steps: Sequence[float]) -> Tensor:
    """Masks of lasting gaps to the right and to the left, (2, m); the first step settles most outputs."""
    size, gaps = context.sampled.size, _gaps(context, one, other, steps[0]).unsqueeze(0)
    lasting = gaps[0] != 0
    for step in steps[1:]:
        if not any_set(lasting):
            break
        gaps = torch.cat([gaps, _gaps(context, one, other, step).unsqueeze(0)])
        lasting = _is_lasting(gaps, steps, size)
    return lasting


def _gaps(context: JudgingContext, one: Tensor, other: Tensor, step: float) -> Tensor:
    """Return the additivity gaps of derivatives to the right and left, 0 if within rounding and noise; (2, m)."""
    slopes = torch.stack(
        [
            torch.stack(
                [
                    (outputs_near(context.sampled, direction * distance) - context.sampled.value) / distance
                    for distance in (step, -step)
                ]
            )
            for direction in (one, other, one + other)
        ]
    )
    gap = slopes[0] + slopes[1] - slopes[2]
    significant = _NOT_ADDITIVE * slopes.abs().amax(dim=0) + ABOVE_NOISE * context.noise.level / step
    return torch.where(gap.abs() > significant, gap, 0.0)


def _is_lasting(gaps: Tensor, steps: Sequence[float], size: Tensor) -> Tensor:
    """Mask of gaps (steps, 2, m) that are the same at every step, (2, m); `size` (m,) is that of the largest output.

    Rounding may exceed the measured noise if the output cancels, but a gap due to rounding grows as the step shrinks.
    So does the gap of a jump, for example of a gradient; it is accepted if the jump is high beside the output.
    """
    heights = gaps * torch.tensor(steps[: len(gaps)], dtype=gaps.dtype, device=gaps.device).view(-1, 1, 1)
    return _are_alike(gaps) | (_are_alike(heights) & (heights[0].abs() > _JUMP_HEIGHT * size))


def _are_alike(values: Tensor) -> Tensor:
    """True where consecutive values (steps, ...) have one sign and differ by at most a factor; (...)."""
    before, after = values[:-1], values[1:]
    alike = (after.abs() <= _ALIKE * before.abs()) & (before.abs() <= _ALIKE * after.abs())
    return (alike & (before * after > 0)).all(dim=0)


def _inputs_of(context: JudgingContext, outputs: Tensor) -> Tensor:
    """Mask of coordinates (n,) that outputs in a mask (m,) may depend on; all if the sparsity is unknown."""
    if context.column_groups.single:
        return torch.ones_like(context.sampled.point, dtype=torch.bool)
    column_of = context.column_groups.column_of[:, outputs]
    inputs = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    inputs[column_of[column_of >= 0]] = True
    return inputs


def _range_of_slopes(
    context: JudgingContext, column: int, neighbours: Iterable[Tensor], factor: float, distance: float = _DISTANCE
) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest derivative by one coordinate at nearby points, each (m,)."""
    length, around = context.lengths.nonzero, (neighbour * (distance * factor) for neighbour in neighbours)
    along = [zero_outside(length, column)]
    derivatives = directional_derivatives_at(context.sampled, around, along, _STEP * factor) / length[column]
    return derivatives.amin(dim=(0, 1)), derivatives.amax(dim=(0, 1))


def _neighbours(
    context: JudgingContext, column: int, generator: torch.Generator, peers: Tensor, ranks: int
) -> Iterator[Tensor]:
    """Yield displacements, in length scales, to points that may lie on different pieces; each (n,)."""
    yield from _at_ranks(context, column, generator, peers, ranks)
    yield from _second_ranks(context, column, generator)
    # Displacing coordinates without a claim may mix eigenvectors, which hides a piece.
    claimed = sum_by_column(context.column_groups, context.claimed.abs()) > 0
    if any_set(claimed) and not all_set(claimed):
        yield from (neighbour * claimed for neighbour in _at_ranks(context, column, generator, claimed, _RANKS))


def _at_ranks(
    context: JudgingContext, column: int, generator: torch.Generator, others: Tensor, ranks: int
) -> Iterator[Tensor]:
    """Yield displacements that put one coordinate at each rank among the others in a mask (n,).

    It is also put at the first and the last rank while all coordinates increase, and while all decrease.
    """
    length, own = context.lengths.nonzero, torch.zeros_like(others)
    own[column] = True
    for shift, count in ((0.0, ranks), (-2.0, 1), (2.0, 1)):
        yield from ((place + shift) * length for place in at_ranks(own, others & ~own, count, generator))


def _second_ranks(context: JudgingContext, column: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield displacements that make one coordinate the second largest or second smallest; another one is the first.

    These distinguish a maximum over some of the coordinates from one over more of them.
    """
    length = context.lengths.nonzero
    others = torch.randperm(len(length), generator=generator).tolist()
    for other in [number for number in others if number != column][:_RANKS]:
        for sign in (1.0, -1.0):
            displaced = _random_direction(context, generator).clamp(-length, length)
            displaced[column], displaced[other] = 2 * sign * length[column], 3 * sign * length[other]
            yield displaced


def _random_direction(context: JudgingContext, generator: torch.Generator) -> Tensor:
    """Return a normal random direction in length scales, (n,)."""
    values = torch.randn(context.sampled.point.shape, generator=generator, dtype=torch.float64)
    return values.to(context.sampled.point.device) * context.lengths.nonzero
