"""Kinks that no coordinate axis shows: ties in a sort, norms of differences, maxima over pairs.

At such a point all partial derivatives may exist although the function is not differentiable: directional derivatives
are not additive. Backward returns the derivative of one of the smooth pieces that meet there. So the output of a
mismatch is tested for additivity; if it is not additive, the derivatives at nearby points bound the accepted values
(Clarke's generalised gradient; F. H. Clarke, Optimization and Nonsmooth Analysis, 1983, section 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from gradverify.core.decide.compare import SIGNIFICANT
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.directional import DISTANCE, RANKS, STEP, at_ranks, directional_derivatives_at
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import reduced_by_column, value_of_column
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.forward.sampler import first_cotangent, outputs_near
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import shuffled
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.tuning import ALIKE, CLEARLY_ABOVE, CLEARLY_LESS, CONVINCING, EXAMINED, SMALL_PART

_CLOSER = 2.0**-8  # of a distance: points this much closer come first, and the gap of a kink is the same there


def excuse_oblique(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Turn mismatches between the derivatives of the pieces that meet at an oblique kink into kinks.

    More pieces may meet there than are examined: entries beyond the limits become undetermined. If some outputs are on
    such a kink, slopes that noise hides at these small steps are measured from farther away.
    """
    length = value_of_column(context.column_groups, chosen, context.lengths.nonzero)
    open_entries = torch.ones_like(judged.kinked)
    for factor in (_CLOSER, 1.0):
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
    large = judged.error > SIGNIFICANT * context.claimed.abs().amax(dim=0)
    accused = wrong & (~judged.kinked | judged.bent & large)
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    accused &= (column_of < first_cotangent(context.sampled)) & claimed.isfinite()  # nan is no slope of a piece
    if not any_set(accused):
        return judged, torch.zeros_like(context.sampled.value, dtype=torch.bool)
    generator = torch.Generator().manual_seed(context.settings.seed)
    kinked = _has_kink(context, generator, factor)
    accused = accused & kinked
    at_kink, columns = torch.zeros_like(accused), shuffled(torch.unique(column_of[accused]))
    not_examined = torch.isin(column_of, columns[EXAMINED:])
    for column in columns[:EXAMINED].tolist():
        peers = _inputs_of(context, (accused & (column_of == column)).any(dim=0))
        state = generator.get_state()
        length = context.lengths.nonzero[column]
        along = zero_outside(context.lengths.nonzero, column)
        places = _neighbours(context, column, generator, peers)
        low, high = (slope / length for slope in _range_of_slopes(context, along, places, factor))
        if int(peers.sum()) >= RANKS:  # the one rank at which this input counts may not have been tried
            not_examined |= (column_of == column) & (low == 0) & (high == 0)
        margin = judged.allowed + _noise_effect(context, BAR_FACTOR, length, factor)
        inside = (claimed >= low - margin) & (claimed <= high + margin) & (high - low > margin)
        found = accused & inside & (column_of == column)
        if any_set(found):  # closer by, smooth variation is smaller, and the slopes of the pieces are the same
            again = torch.Generator()
            again.set_state(state)
            places = _neighbours(context, column, again, peers)
            near_low, near_high = _range_of_slopes(context, along, places, factor, CLEARLY_LESS)
            found &= high - low <= ALIKE * (near_high - near_low) / length
        at_kink |= found
    possible = not_examined & (~judged.kinked | at_kink.any(dim=0))  # others of the output have this explanation
    rules = [(accused & possible, Reason.POSSIBLE_OBLIQUE_KINK), (at_kink, Reason.OBLIQUE_KINK)]
    return decide(judged, rules), kinked


def _noise_effect(context: JudgingContext, times: float, length: Tensor, factor: float) -> Tensor:
    """Return the effect of `times` the noise on derivatives of the pieces, for coordinates with these length scales."""
    return times * context.noise.level / (STEP * factor * length)


def _has_kink(context: JudgingContext, generator: torch.Generator, factor: float) -> Tensor:
    """Mask of outputs whose one-sided directional derivatives are not additive, (m,).

    If many inputs are tied at zero, possibly only the direction of all of them shows it.
    """
    pairs = [(_random_direction(context, generator), _random_direction(context, generator)) for _ in range(CONVINCING)]
    pairs.append((context.lengths.nonzero, SMALL_PART * _random_direction(context, generator)))
    kinked = torch.zeros_like(context.sampled.value, dtype=torch.bool)
    for one, other in pairs:
        gap, lasting = _gap(context, one, other, DISTANCE * factor)
        for share in (CLEARLY_LESS, _CLOSER):
            if any_set(lasting):
                ratio = gap / _gap(context, one, other, share * DISTANCE * factor)[0]
                lasting &= (ratio <= ALIKE) & (ratio >= 1 / ALIKE)
        kinked |= lasting.any(dim=0)
    return kinked


def _gap(context: JudgingContext, one: Tensor, other: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Return the additivity gaps of derivatives to the right and left, and which exceed rounding and noise; (2, m)."""
    sampled, moves = context.sampled, [(direction, h) for direction in (one, other, one + other) for h in (step, -step)]
    slopes = torch.stack([(outputs_near(sampled, direction * h) - sampled.value) / h for direction, h in moves])
    slopes = slopes.view(3, 2, -1)
    gap, steepest = slopes[0] + slopes[1] - slopes[2], slopes.abs().amax(dim=0)
    return gap, gap.abs() > SIGNIFICANT * steepest + BAR_FACTOR * context.noise.level / step


def _inputs_of(context: JudgingContext, outputs: Tensor) -> Tensor:
    """Mask of coordinates (n,) that outputs in a mask (m,) may depend on; all if the sparsity is unknown."""
    if context.column_groups.single:
        return torch.ones_like(context.sampled.point, dtype=torch.bool)
    column_of = context.column_groups.column_of[:, outputs]
    inputs = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    inputs[column_of[column_of >= 0]] = True
    return inputs


def _range_of_slopes(
    context: JudgingContext, direction: Tensor, places: Iterable[Tensor], factor: float, share: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest derivative along a direction (n,) at points close by, each (m,).

    `places` are their displacements in multiples of the distance, of which `share` is taken.
    """
    around = (place * (share * factor * DISTANCE) for place in places)
    derivatives = directional_derivatives_at(context.sampled, around, [direction], STEP * factor)
    return derivatives.amin(dim=(0, 1)), derivatives.amax(dim=(0, 1))


def _neighbours(context: JudgingContext, column: int, generator: torch.Generator, peers: Tensor) -> Iterator[Tensor]:
    """Yield displacements, in length scales, to points that may lie on different pieces; each (n,)."""
    yield from _at_ranks(context, column, generator, peers)
    yield from _second_ranks(context, column, generator)
    # Displacing coordinates without a claim may mix eigenvectors, which hides a piece.
    claimed = reduced_by_column(context.column_groups, context.claimed.abs(), "sum") > 0
    if any_set(claimed) and not all_set(claimed):
        yield from (neighbour * claimed for neighbour in _at_ranks(context, column, generator, claimed))


def _at_ranks(context: JudgingContext, column: int, generator: torch.Generator, others: Tensor) -> Iterator[Tensor]:
    """Yield displacements that put one coordinate at each rank among the others in a mask (n,).

    It is also put at the first and the last rank while all coordinates increase, and while all decrease.
    """
    length, own = context.lengths.nonzero, torch.zeros_like(others)
    own[column] = True
    for shift, count in ((0.0, RANKS), (-2.0, 1), (2.0, 1)):
        yield from ((place + shift) * length for place in at_ranks(own, others & ~own, count, generator))


def _second_ranks(context: JudgingContext, column: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield displacements that make one coordinate the second largest or second smallest; another one is the first.

    These distinguish a maximum over some of the coordinates from one over more of them.
    """
    length = context.lengths.nonzero
    others = torch.randperm(len(length), generator=generator).tolist()
    for other in [number for number in others if number != column][:EXAMINED]:
        for sign in (1.0, -1.0):
            displaced = _random_direction(context, generator).clamp(-length, length)
            displaced[column], displaced[other] = 2 * sign * length[column], 3 * sign * length[other]
            yield displaced


def _random_direction(context: JudgingContext, generator: torch.Generator) -> Tensor:
    """Return a normal random direction in length scales, (n,)."""
    values = torch.randn(context.sampled.point.shape, generator=generator, dtype=torch.float64)
    return values.to(context.sampled.point.device) * context.lengths.nonzero
