"""Kinks that no coordinate axis shows: ties in a sort, norms of differences, maxima over pairs.

At such a point the derivatives along the axes may all exist while the function is not differentiable: they do not
add up to its derivatives along other directions. What backward returns is the derivative of one of the smooth pieces
that meet there. So before an entry is accused that no axis shows to be on a kink, its output is tried for additivity,
and if it fails, the pieces are looked up: the derivatives at points close by span the values that are accepted
(Clarke's generalised gradient; F. H. Clarke, Optimization and Nonsmooth Analysis, 1983, section 2.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.tolerance import NEGLIGIBLE
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.column_groups import GroupKind, by_column, owned
from gradverify.core.estimate.nearby_gradients import slopes, spread_evenly
from gradverify.core.excuses.trial import Trial
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import along
from gradverify.core.model.magnitudes import all_set, any_set

_TRIALS = 6  # pairs of random directions whose derivatives should add up
_LEAD = 8.0  # by how much the input in the lead moves further than it would
_ASIDE = 2.0**-3  # how far the last of these leads off the line on which all inputs rise alike
_SHORT = (2.0**-28, 2.0**-32, 2.0**-36, 2.0**-40)  # steps of these trials, relative to the length scale
_BROKEN = 1e-3  # a sum off by this part of its terms, at every step, is no rounding
_ALIKE = 1.5  # from step to step such a gap stays what it is, up to this factor; what rounding leaves grows by 16
_TORN = 2.0**-26  # of the largest output: a jump as high as this is hardly one of rounding
_NEIGHBOURS = 8  # random points close by whose derivatives are looked up
_RANKS = 48  # places among the others that a coordinate is put in, or more where few coordinates are looked up
_EVERY = 512  # of these, at most
_DISTANCE = 2.0**-26  # of these points, relative to the length scale
_STEP = 2.0**-36  # of the differences there, well inside one smooth piece
_COLUMNS = 96  # coordinates looked up, at most
_FARTHER = (1.0, 2.0**12, 2.0**20)  # times as far off, one after the other, slopes are looked up that noise hides
_LOST = 8.0  # times what noise may change in them, and less, are slopes that it hides
_AUDIBLE = 8.0  # how far above the noise a difference must stand


def excuse_oblique(trial: Trial, judged: Judged) -> Judged:
    """Turn accusations that lie between the derivatives of the pieces meeting at an oblique kink into kinks.

    At such a kink there may be more pieces than are looked up: what lies between slopes that other inputs were seen to
    have is not accused either, and nor is what there was no time to look at. Where some outputs are on such a kink, the
    slopes of others that are lost in noise at steps so small are looked up from farther off, and left open where even
    that is not far enough.
    """
    length, some = (
        owned(trial.context.column_groups, trial.chosen, own_or_shared(trial.context.lengths)),
        torch.ones_like(judged.kinked),
    )
    for farther in _FARTHER:
        judged, kinked = _tried(trial, judged, some, farther)
        margin = _margin(trial.context, length, farther)
        some = (judged.code == Code.MISMATCH) & (judged.error <= _LOST * margin)
        if not any_set(kinked) or not any_set(some):
            return judged
    hardly = (judged.error <= margin) & (judged.error * length <= NEGLIGIBLE * trial.context.sampled.size)
    some &= kinked | hardly  # others can be heard to have no kink, or would matter
    return decide(judged, [(some, Reason.NOISE_HIDES_KINK)])


def _tried(trial: Trial, judged: Judged, some: Tensor, farther: float) -> tuple[Judged, Tensor]:
    """Look at some (C, m) of the accusations, from so many times as far off.

    Returns the verdicts, and which outputs were seen to have a kink, (m,) bool.
    """
    context, chosen = trial.context, trial.chosen
    wrong = some & (judged.code == Code.MISMATCH)
    # Where an axis does show a kink, the pieces may still have more than its two slopes, as differences in a sort.
    beyond = judged.error > _BROKEN * context.claimed.abs().amax(dim=0)
    accused = wrong & (~judged.kinked | judged.bent & beyond)
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    accused &= column_of < _first_cotangent(context)
    if not any_set(accused):
        return judged, torch.zeros_like(context.sampled.value, dtype=torch.bool)
    generator = torch.Generator().manual_seed(trial.seed)
    oblique, kinked = _not_additive(context, generator, farther)
    accused = accused & kinked
    unsure = accused & ~judged.kinked & oblique
    doubtful = set(column_of[unsure].tolist())
    at_kink, columns = torch.zeros_like(accused), torch.unique(column_of[accused])
    unseen = torch.isin(column_of, columns[_COLUMNS:])
    lowest = torch.zeros_like(context.sampled.value)
    highest = torch.zeros_like(context.sampled.value)
    ranks = min(_EVERY, max(_RANKS, _RANKS * _COLUMNS // max(1, len(columns))))
    for column in columns[:_COLUMNS].tolist():
        peers = _peers(context, (accused & (column_of == column)).any(dim=0))
        low, high = _pieces(context, column, _neighbours(context, column, generator, peers, ranks), farther)
        if int(peers.sum()) >= ranks:  # among so many, the one place where this input counts may not have been tried
            unseen |= (column_of == column) & (low == 0) & (high == 0)
        if column in doubtful:
            lowest, highest = torch.fmin(lowest, low), torch.fmax(highest, high)
        margin = judged.allowed + _margin(context, own_or_shared(context.lengths)[column], farther)
        inside = (claimed >= low - margin) & (claimed <= high + margin) & (high - low > margin)
        at_kink |= accused & inside & (column_of == column)
    slack = _BROKEN * (highest - lowest)
    possible = (claimed >= lowest - slack) & (claimed <= highest + slack) & (highest > lowest) | unseen
    rules = [(unsure & possible, Reason.POSSIBLE_OBLIQUE_KINK), (at_kink, Reason.OBLIQUE_KINK)]
    return decide(judged, rules), kinked


def _margin(context: JudgingContext, length: Tensor, farther: float) -> Tensor:
    """Return what noise may change in the derivatives of the pieces, by coordinates of these length scales."""
    return _AUDIBLE * context.noise.level / (_STEP * farther * length)


def _first_cotangent(context: JudgingContext) -> int:
    """Return the first coordinate in which a vjp is linear: in those it has one derivative, be it on a kink or not."""
    problem = context.sampled.problem
    own = len(problem.primals) - problem.cotangents
    return min(
        (block.start for block in context.sampled.inputs if block.tensor >= own), default=len(context.sampled.point)
    )


def _not_additive(context: JudgingContext, generator: torch.Generator, farther: float) -> tuple[Tensor, Tensor]:
    """Tell which outputs have derivatives along two directions that do not add up to that along their sum.

    The first (m,) asks derivatives to both sides, which along the axes may all exist; the second those to one side,
    which tell every kink. Where many inputs meet at zero, only all of them rising may show it.
    """
    oblique, kinked = (torch.zeros_like(context.sampled.value, dtype=torch.bool) for _ in range(2))
    pairs = [(_random(context, generator), _led(context, generator)) for _ in range(_TRIALS)]
    for one, other in (*pairs, (own_or_shared(context.lengths), _ASIDE * _random(context, generator))):
        both, forth, back = _lasting(context, one, other, [step * farther for step in _SHORT])
        oblique |= both
        kinked |= forth | back
    return oblique, kinked


def _lasting(context: JudgingContext, one: Tensor, other: Tensor, steps: Sequence[float]) -> Tensor:
    """Tell which gaps last, to both sides, forth and back, (3, m); most are settled by two steps."""
    first, second, *finer = steps
    gaps = torch.stack([_gaps(context, one, other, step) for step in (first, second)])
    lasting = _last(gaps, steps, context.sampled.size)
    if not any_set(lasting):
        return lasting
    *most, finest = torch.cat([gaps, torch.stack([_gaps(context, one, other, step) for step in finer])])
    seen = torch.stack(most)
    drowned: Tensor = finest == 0  # of what is there at three steps, noise may hide the fourth
    size = context.sampled.size
    return _last(seen, steps, size) & (drowned | _last(torch.stack([*most, finest]), steps, size))


def _gaps(context: JudgingContext, one: Tensor, other: Tensor, step: float) -> Tensor:
    """Return by how much derivatives do not add up, to both sides, forth and back, 0 where they may; (3, m)."""
    forth, back = [], []
    for direction in (one, other, one + other):
        forth.append((along(context.sampled, direction * step) - context.sampled.value) / step)
        back.append((context.sampled.value - along(context.sampled, direction * -step)) / step)
    both = [(right + left) / 2 for right, left in zip(forth, back, strict=True)]
    return torch.stack([_gap(context, slopes, step) for slopes in (both, forth, back)])


def _gap(context: JudgingContext, slopes: list[Tensor], step: float) -> Tensor:
    size, gap = torch.stack(slopes).abs().amax(dim=0), slopes[0] + slopes[1] - slopes[2]
    return torch.where(gap.abs() > _BROKEN * size + _AUDIBLE * context.noise.level / step, gap, 0.0)


def _last(gaps: Tensor, steps: Sequence[float], size: Tensor) -> Tensor:
    """Tell which gaps (steps, 3, m) are there at every step, and as wide as at the one before; (3, m).

    Rounding may be louder than it was heard to be: where it cancels, an output may be far smaller than what it is made
    of. But what it leaves in a sum of slopes grows as steps shrink. So does what a jump leaves, as that of a gradient,
    which is high beside the largest output, `size` (m,).
    """
    heights = gaps * torch.tensor(steps[: len(gaps)], dtype=gaps.dtype, device=gaps.device).view(-1, 1, 1)
    return _are_alike(gaps) | (_are_alike(heights) & (heights[0].abs() > _TORN * size))


def _are_alike(values: Tensor) -> Tensor:
    before, after = values[:-1], values[1:]
    alike = (after.abs() <= _ALIKE * before.abs()) & (before.abs() <= _ALIKE * after.abs())
    return (alike & (before * after > 0)).all(dim=0)


def _peers(context: JudgingContext, outputs: Tensor) -> Tensor:
    """Tell which coordinates may move some of the outputs, (m,) bool, as far as that is known; (n,)."""
    if context.column_groups.kind is GroupKind.SINGLE:
        return torch.ones_like(context.sampled.point, dtype=torch.bool)
    column_of = context.column_groups.column_of[:, outputs]
    mine = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    mine[column_of[column_of >= 0]] = True
    return mine


def _pieces(
    context: JudgingContext, column: int, neighbours: Iterable[Tensor], farther: float
) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest derivative by one coordinate at points close by, each (m,)."""
    direction = torch.zeros_like(context.sampled.point)
    direction[column] = own_or_shared(context.lengths)[column]
    around = (neighbour * (_DISTANCE * farther) for neighbour in neighbours)
    found = slopes(context.sampled, around, [direction], _STEP * farther).squeeze(1) / direction[column]
    return found.amin(dim=0), found.amax(dim=0)


def _neighbours(
    context: JudgingContext, column: int, generator: torch.Generator, peers: Tensor, ranks: int
) -> Iterator[Tensor]:
    """Yield displacements, in length scales, to points that may lie in different pieces."""
    yield from _ranks(context, column, generator, peers, ranks)
    yield from (_random(context, generator) for _ in range(_NEIGHBOURS))
    yield from _seconds(context, column, generator)
    alone = (
        by_column(context.column_groups, context.claimed.abs()) > 0
    )  # where others move too, eigenvectors mix and hide a piece
    if any_set(alone) and not all_set(alone):
        yield from (neighbour * alone for neighbour in _ranks(context, column, generator, alone, _RANKS))


def _ranks(
    context: JudgingContext, column: int, generator: torch.Generator, others: Tensor, ranks: int
) -> Iterator[Tensor]:
    """Yield displacements that put one coordinate between any two of the others, (n,) bool, which are spread evenly.

    Of coordinates that are tied, it is then the smallest once, the second smallest once, and so on, as far as there are
    no more `ranks` than that; the smallest and the largest also while all of them rise, or all fall.
    """
    length, count = own_or_shared(context.lengths), int(others.sum())
    spread = spread_evenly(others, generator) * length
    gaps = torch.linspace(0, count, min(count + 1, ranks + 1)).round()
    ends = [(gap, shift) for shift in (-2.0, 2.0) for gap in (0.0, float(count))]
    for gap, shift in (*((gap, 0.0) for gap in gaps.tolist()), *ends):
        displaced = spread + shift * length
        displaced[column] = (2.0 * (gap - 0.5) / count - 1.0 + shift) * length[column]
        yield displaced


def _led(context: JudgingContext, generator: torch.Generator) -> Tensor:
    """Return a random direction in which one of the inputs moves further than all others."""
    direction = _random(context, generator)
    leader = int(torch.randint(len(direction), (), generator=generator))
    direction[leader] *= _LEAD
    return direction


def _seconds(context: JudgingContext, column: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield displacements that put one coordinate next to the largest and next to the smallest, whichever that is.

    A maximum over some of the coordinates and one over more of them then differ in what this one means to them.
    """
    length = own_or_shared(context.lengths)
    others = torch.randperm(len(length), generator=generator).tolist()
    for other in [number for number in others if number != column][:_RANKS]:
        for sign in (1.0, -1.0):
            displaced = _random(context, generator).clamp(-length, length)
            displaced[column], displaced[other] = 2 * sign * length[column], 3 * sign * length[other]
            yield displaced


def _random(context: JudgingContext, generator: torch.Generator) -> Tensor:
    values = torch.randn(context.sampled.point.shape, generator=generator, dtype=torch.float64)
    return values.to(context.sampled.point.device) * own_or_shared(context.lengths)
