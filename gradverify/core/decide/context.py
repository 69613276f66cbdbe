"""What entries are judged with: the samples, their noise, the length scales, and what backward claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward, reverse
from gradverify.core.decide.tolerance import EntryTolerance, entry_scale, relative_tolerance, resolution_scale
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import ColumnGroups, of_outputs
from gradverify.core.estimate.stencil import InitialSamples, opening
from gradverify.core.forward import sampler
from gradverify.core.forward.length_scales import LengthScales, scales
from gradverify.core.forward.noise import Noise, moves_finely
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler, magnitudes
from gradverify.core.forward.step_noise import lasting

_LEAST = 8.0  # times the smallest number of backward's dtype, which what underflows inside may leave


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingContext:
    """What is needed to judge columns: the sampled forward, its noise and scales, and the claimed Jacobian."""

    sampled: Sampler
    noise: Noise
    lengths: LengthScales
    column_groups: ColumnGroups
    claimed: Tensor  # (M, m): what backward claims of each output and the coordinate that owns it in each move
    allowance: EntryTolerance
    loudest: Callable[[], Tensor]  # () -> (m,), of many outputs at once: see `lasting`
    finely: Callable[[], Tensor]  # () -> (m,) bool, likewise: see `noise.moves_finely`

    @property
    def width(self) -> int:
        """How many numbers a move takes: those of a point, and of the outputs looked at there."""
        return self.sampled.value.numel() + self.sampled.point.numel()


def judging_context(
    sampled: Sampler,
    noise: Noise,
    lengths: LengthScales,
    column_groups: ColumnGroups,
    claimed: Tensor,
    settings: Settings,
) -> JudgingContext:
    """Put together what every move is judged with; `claimed` is (M, m)."""
    size = size_of(claimed)
    largest = magnitudes(sampled, size.amax(dim=0)) if len(claimed) else sampled.value
    return JudgingContext(
        sampled=sampled,
        noise=noise,
        lengths=lengths,
        column_groups=column_groups,
        claimed=claimed,
        allowance=allowance_of(sampled, lengths.step, column_groups, size, largest, settings),
        loudest=cache(lambda: lasting(sampled, lengths)),
        finely=cache(lambda: moves_finely(sampled, lengths)),
    )


def allowance_of(
    sampled: Sampler, step: Tensor, column_groups: ColumnGroups, size: Tensor, largest: Tensor, settings: Settings
) -> EntryTolerance:
    """Return what the tolerances leave for every entry, whose claims are of that size, (M, m).

    `step` (n,) is what steps go by, and `largest` () or (m,) the largest that is claimed of each output tensor.
    """
    return EntryTolerance(
        rtol=relative_tolerance(settings.tolerances, sampled.dtypes),
        floor=floor_of(sampled, settings),
        beside=entry_scale(column_groups, size),
        scale=resolution_scale(column_groups, size, sampled.size, step),
        largest=largest.expand(size.shape[1]),
        order=sampled.problem.order,
        coarse=sampled.coarse,
    )


def floor_of(sampled: Sampler, settings: Settings) -> float:
    """Return the part of what is allowed that is the same for all entries."""
    return (settings.tolerances.atol or 0.0) + _LEAST * sampled.least


def size_of(claimed: Tensor) -> Tensor:
    """Return how large claims are, zero where they are no number."""
    return claimed.abs().nan_to_num_(0.0, 0.0, 0.0)


def focused(context: JudgingContext, outputs: Tensor | slice) -> JudgingContext:
    """Return the bench with some of the outputs only, given by their numbers."""
    if isinstance(outputs, slice) and outputs == slice(0, context.sampled.value.numel()):
        return context
    column_groups = of_outputs(context.column_groups, outputs)
    allowance = part_of(context.allowance, slice(None), outputs)
    sampled, claimed = sampler.focused(context.sampled, outputs), context.claimed[:, outputs]
    return replace(
        context,
        sampled=sampled,
        noise=context.noise.of(outputs),
        column_groups=column_groups,
        claimed=claimed,
        allowance=allowance,
        loudest=lambda: context.loudest()[outputs],
        finely=lambda: context.finely()[outputs],
    )


def of_moves(allowance: EntryTolerance, chosen: Tensor) -> EntryTolerance:
    """Return the allowance of some of the moves, which are in order."""
    if len(chosen) == len(allowance.beside):
        return allowance
    return part_of(allowance, chosen, slice(None))


def part_of(allowance: EntryTolerance, column_groups: Tensor | slice, outputs: Tensor | slice) -> EntryTolerance:
    """Return the allowance of some of the moves and some of the outputs, one of which is a slice."""
    return EntryTolerance(
        rtol=allowance.rtol,
        floor=allowance.floor,
        beside=allowance.beside[column_groups, outputs],
        scale=allowance.scale[column_groups, outputs],
        largest=allowance.largest[outputs],
        order=allowance.order,
        coarse=allowance.coarse,
    )


Reconsider = Callable[[JudgingContext, Tensor, Judged], Judged]  # another look at the verdicts on some moves


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProblem:
    """A problem measured out."""

    sampled: Sampler
    backward: Backward
    lengths: LengthScales
    open: Callable[[], InitialSamples]  # asks the first questions, once: where they are not needed, they cost nothing

    @property
    def opening(self) -> InitialSamples:
        """What the first questions have shown."""
        return self.open()

    @property
    def noise(self) -> Noise:
        """A bound on each output's own error."""
        return self.opening.noise

    @property
    def entries(self) -> int:
        """How many entries the Jacobian has."""
        return self.sampled.point.numel() * self.sampled.value.numel()


def measure_problem(steady: Repeatable, settings: Settings) -> MeasuredProblem:
    """Measure a problem out; raises EvaluationError."""
    around, lengths = steady.sampled, scales(steady.sampled)
    backward = reverse(steady.problem, steady.tape, settings.seed)
    first = cache(lambda: opening(around, lengths, settings.seed))
    return MeasuredProblem(sampled=around, backward=backward, lengths=lengths, open=first)


def focused_problem(measured: MeasuredProblem, outputs: Tensor, settings: Settings) -> MeasuredProblem:
    """Return the ground of some of the outputs only, given by their numbers."""
    sampled = sampler.focused(measured.sampled, outputs)
    return replace(measured, sampled=sampled, open=cache(lambda: opening(sampled, measured.lengths, settings.seed)))


def as_judged(context: JudgingContext, chosen: Tensor, judged: Judged) -> Judged:
    """Leave the verdicts as they are: the Reconsider of order 1."""
    del context, chosen
    return judged
