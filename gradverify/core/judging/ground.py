"""What every way of comparing Jacobians stands on: the sampled forward, backward, length scales and noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function import sampler
from gradverify.core.function.analytic import Reverse, reverse
from gradverify.core.function.noise import Noise
from gradverify.core.function.sampler import Sampler
from gradverify.core.function.scale import Scales, scales
from gradverify.core.function.steady import Steady
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Judged
from gradverify.core.numeric.opening import Opening, opening

Reconsider = Callable[[Bench, Tensor, Judged], Judged]  # another look at the verdicts on some moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """A problem measured out."""

    sampled: Sampler
    backward: Reverse
    lengths: Scales
    open: Callable[[], Opening]  # asks the first questions, once: where they are not needed, they cost nothing

    @property
    def opening(self) -> Opening:
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


def ground_of(steady: Steady, settings: Settings) -> Ground:
    """Measure a problem out; raises EvaluationError."""
    around, lengths = steady.sampled, scales(steady.sampled)
    backward = reverse(steady.problem, steady.tape, settings.seed)
    first = cache(lambda: opening(around, lengths, settings.seed))
    return Ground(sampled=around, backward=backward, lengths=lengths, open=first)


def focused(ground: Ground, outputs: Tensor, settings: Settings) -> Ground:
    """Return the ground of some of the outputs only, given by their numbers."""
    sampled = sampler.focused(ground.sampled, outputs)
    return replace(ground, sampled=sampled, open=cache(lambda: opening(sampled, ground.lengths, settings.seed)))


def as_judged(at: Bench, chosen: Tensor, judged: Judged) -> Judged:
    """Leave the verdicts as they are: the Reconsider of order 1."""
    del at, chosen
    return judged
