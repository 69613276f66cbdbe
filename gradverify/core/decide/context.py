"""The data that entries are judged with: sampler, noise, length scales, backward, claimed Jacobian and tolerances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import BOUNDS, amplification
from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward, backward_of
from gradverify.core.decide.compare import (
    NEGLIGIBLE,
    EntryTolerance,
    largest_change,
    relative_tolerance,
    row_column_size,
)
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import ColumnGroups, groups_of_outputs
from gradverify.core.estimate.stencil import InitialSamples, initial_samples
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler, is_double, magnitudes, restricted_to_outputs
from gradverify.core.forward.step_noise import rounding_on_the_way, with_stairs
from gradverify.core.model.magnitudes import LengthScales, finite_size, scales
from gradverify.core.tuning import LOST_UNITS

Reconsider = Callable[["JudgingContext", Tensor, Judged], Judged]  # changes verdicts on column groups (C,)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingContext:
    """Sampled forward, its noise and length scales, claimed Jacobian and tolerances."""

    sampled: Sampler
    noise: Noise
    lengths: LengthScales
    backward: Backward
    settings: Settings
    reconsider: Reconsider  # applied to the final verdicts
    column_groups: ColumnGroups
    claimed: Tensor  # (M, m): the claim for each output and its column in each column group
    allowance: EntryTolerance
    # () -> (m,), kept: upper bounds on `step_noise.rounding_on_the_way`, the cheapest first, and at the end the measure
    rounding_bounds: tuple[Callable[[], Tensor], ...]
    sparse: bool = False  # True if every second step of the ladder is enough

    @property
    def numbers_per_sample(self) -> int:
        """Numbers in one sample: the coordinates of a point and of the outputs looked at."""
        return self.sampled.value.numel() + self.sampled.point.numel()


def along_line(context: JudgingContext, direction: Tensor, claimed: Tensor) -> JudgingContext:
    """Return the context for one column group that moves all coordinates along a direction (n,).

    The direction is positive, or zero for coordinates that stay. The group stands for the column of the coordinate that
    moves furthest, so `claimed` (m,) is per unit of that one.
    """
    furthest, moved = int(direction.argmax()), direction > 0
    group_of = moved.logical_not().long()
    columns = torch.stack([torch.full_like(claimed, furthest), torch.full_like(claimed, -1.0)]).long()
    groups = ColumnGroups(group_of=group_of, column_of=columns)
    lengths = LengthScales(own=direction, shared=direction, step=direction)
    claims = torch.stack([claimed, torch.zeros_like(claimed)])
    largest = context.allowance.largest
    allowance = allowance_of(context.sampled, lengths, groups, finite_size(claims), largest, context.settings)
    allowance = replace(allowance, rtol=0.0)  # the claim is a sum of measured numbers
    return replace(context, lengths=lengths, column_groups=groups, claimed=claims, allowance=allowance, sparse=True)


def judging_context(
    measured: MeasuredProblem, column_groups: ColumnGroups, claimed: Tensor, noise: Noise | None = None
) -> JudgingContext:
    """Return the context for all column groups; `claimed` is (M, m). `noise` replaces that of the problem."""
    sampled, lengths, size = measured.sampled, measured.lengths, finite_size(claimed)
    noise = measured.noise if noise is None else noise
    largest = magnitudes(sampled, size.amax(dim=0)) if len(claimed) else sampled.value
    return JudgingContext(
        sampled=sampled,
        noise=noise,
        lengths=lengths,
        backward=measured.backward,
        settings=measured.settings,
        reconsider=measured.reconsider,
        column_groups=column_groups,
        claimed=claimed,
        allowance=allowance_of(sampled, lengths, column_groups, size, largest, measured.settings),
        rounding_bounds=_rounding_bounds(sampled, noise, lengths),
    )


def _rounding_bounds(sampled: Sampler, noise: Noise, lengths: LengthScales) -> tuple[Callable[[], Tensor], ...]:
    """Return `JudgingContext.rounding_bounds`.

    Of a forward that takes low precision only, it is the height of its stairs, as far as rounding explains them: noise
    that is added to such numbers is lost at once.
    """
    if not is_double(sampled):
        return (cache(lambda: with_stairs(noise, sampled, lengths).rounding),)
    return tuple(cache(partial(rounding_on_the_way, sampled, measure)) for measure in (*BOUNDS, amplification))


def allowance_of(
    sampled: Sampler,
    lengths: LengthScales,
    column_groups: ColumnGroups,
    size: Tensor,
    largest: Tensor,
    settings: Settings,
) -> EntryTolerance:
    """Return the tolerances of every entry; `size` (M, m) is the magnitude of the claims.

    `largest` () or (m,) is the largest claim for each output tensor. An entry is negligible, below `scale`, if it
    changes the output little, compared with the other inputs and with the output itself.
    """
    return EntryTolerance(
        rtol=relative_tolerance(settings.tolerances, sampled.dtypes),
        floor=absolute_floor(sampled, settings),
        row_column_size=row_column_size(column_groups, size, lengths.shared),
        scale=largest_change(column_groups, size, lengths.step, at_least=NEGLIGIBLE * sampled.size),
        largest=largest.expand(size.shape[1]),
        backward_eps=sampled.backward_eps,
        largest_number=sampled.largest_number,
    )


def absolute_floor(sampled: Sampler, settings: Settings) -> float:
    """Return the part of the absolute tolerance that is the same for all entries."""
    return (settings.tolerances.atol or 0.0) + LOST_UNITS * sampled.smallest_number


def focused(context: JudgingContext, outputs: Tensor) -> JudgingContext:
    """Return the context restricted to some of the outputs, given by index."""
    return replace(
        context,
        sampled=restricted_to_outputs(context.sampled, outputs),
        noise=context.noise.of(outputs),
        column_groups=groups_of_outputs(context.column_groups, outputs),
        claimed=context.claimed[:, outputs],
        allowance=part_of(context.allowance, slice(None), outputs),
        rounding_bounds=tuple(partial(_of_outputs, known, outputs) for known in context.rounding_bounds),
    )


def _of_outputs(known: Callable[[], Tensor], outputs: Tensor) -> Tensor:
    return known()[outputs]


def of_column_groups(allowance: EntryTolerance, chosen: Tensor) -> EntryTolerance:
    """Return the tolerances of some column groups, given in ascending order."""
    if len(chosen) == len(allowance.row_column_size):
        return allowance
    return part_of(allowance, chosen, slice(None))


def part_of(allowance: EntryTolerance, chosen: Tensor | slice, outputs: Tensor | slice) -> EntryTolerance:
    """Return the tolerances of some column groups and outputs; at least one of the two is a slice."""
    return replace(
        allowance,
        row_column_size=allowance.row_column_size[chosen, outputs],
        scale=allowance.scale[chosen, outputs],
        largest=allowance.largest[outputs],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProblem:
    """A problem with its sampler, backward and length scales, and how it is to be judged."""

    sampled: Sampler
    backward: Backward
    lengths: LengthScales
    settings: Settings
    reconsider: Reconsider  # applied to the final verdicts
    initial: Callable[[], InitialSamples]  # takes these samples on the first call, and returns the same afterwards
    backward_in_float64: Backward | None = None  # the same one in float64, if `backward` has less, and for sums only

    @property
    def noise(self) -> Noise:
        """A bound on each output's own error; takes the initial samples."""
        return self.initial().noise

    @property
    def entries(self) -> int:
        """Number of entries of the Jacobian."""
        return self.sampled.point.numel() * self.sampled.value.numel()


def measure_problem(repeatable: Repeatable, settings: Settings, reconsider: Reconsider) -> MeasuredProblem:
    """Return the measured problem; raises EvaluationError."""
    sampled, lengths = repeatable.sampled, scales(repeatable.sampled.point, repeatable.sampled.inputs)
    backward = backward_of(repeatable.problem, repeatable.tape, settings.seed)
    initial = cache(lambda: initial_samples(sampled, lengths, settings.seed))
    return MeasuredProblem(
        sampled=sampled, backward=backward, lengths=lengths, settings=settings, reconsider=reconsider, initial=initial
    )


def focused_problem(measured: MeasuredProblem, outputs: Tensor) -> MeasuredProblem:
    """Return the problem restricted to some of the outputs, given by index."""
    sampled = restricted_to_outputs(measured.sampled, outputs)
    initial = cache(lambda: initial_samples(sampled, measured.lengths, measured.settings.seed))
    return replace(measured, sampled=sampled, initial=initial)


def unchanged(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Return the verdicts unchanged: the Reconsider of order 1."""
    del context, chosen
    return judged
