"""GV406 and GV407: forward and backward are deterministic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract import reused_memory
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Coordinates, Subject, gradients_of, graph_for_vjp, outputs_of
from gradverify.checks.contract.wording import difference, mismatches, remark
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.generators import generators_unused, own_seed, seed_everywhere
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record
from gradverify.result import Finding, Verdict

_ROUNDING_ULPS = 512.0  # ulps of the largest entry: smaller differences come from the order of a sum
_REPEATS = 3  # number of repeated vjps


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatableForward:
    """A problem with a repeatable forward, seeded if necessary, or one graph to share."""

    problem: Problem
    tape: Tape
    reuse: Reuse  # FRESH if the forward is repeatable, else SHARED
    findings: tuple[Finding, ...] = ()


def repeatable_forward(problem: Problem, settings: Settings) -> RepeatableForward:
    """Return the problem with a repeatable forward, or with finding GV406 if it is random; raises EvaluationError.

    Findings also contain GV408 if a second forward overwrites the outputs of the first.
    """
    seed_everywhere(settings.seed)
    tape, other = record(problem), record(problem)
    overwritten = tuple(reused_memory.outputs(problem, tape, other))
    if overwritten:
        return RepeatableForward(problem=problem, tape=tape, reuse=Reuse.SHARED, findings=overwritten)
    spread = _spread(tape, other)
    if spread <= _ROUNDING_ULPS and generators_unused(settings.seed):
        return RepeatableForward(problem=problem, tape=tape, reuse=Reuse.FRESH, findings=_remark_on(spread))
    seeded = replace(problem, seed=own_seed(settings.seed) if problem.seed is None else problem.seed)
    tape = record(seeded)
    spread = _spread(tape, record(seeded))
    if spread <= _ROUNDING_ULPS:
        return RepeatableForward(problem=seeded, tape=tape, reuse=Reuse.FRESH, findings=_remark_on(spread))
    text = "the forward is random: it differs between two calls at one point, even when seeded before each"
    finding = Finding(code="GV406", verdict=Verdict.INCONCLUSIVE, message=text)
    return RepeatableForward(problem=problem, tape=tape, reuse=Reuse.SHARED, findings=(finding,))


def repeated_gradients(subject: Subject) -> tuple[Coordinates, ...]:
    """Return B(cotangents) three more times, each after another RNG seed; raises EvaluationError."""
    found = []
    for number in range(_REPEATS):
        tape = graph_for_vjp(subject)
        seed_everywhere(subject.settings.seed + 101 + number)
        found.append(gradients_of(subject, tape, subject.cotangents))
    return tuple(found)


def findings(subject: Subject, again: tuple[Coordinates, ...]) -> Iterator[Finding]:
    """GV407: backward gives the same gradient for the same cotangent."""
    for answer in again:
        claim = "backward is not deterministic: asked twice, it answers differently"
        failures = [*mismatches(subject, "GV407", claim, answer, subject.gradients)]
        if failures:
            yield from failures
            return
    spread = max((_ulps(one, other) for answer in again for one, other in _pairs(answer, subject)), default=0.0)
    if spread > 0:
        yield remark("GV407", f"backward repeats to {spread:.3g} ulp of its largest entry: a sum in varying order")


def rounding_spread(subject: Subject, again: tuple[Coordinates, ...]) -> tuple[float, ...]:
    """Return per primal the largest absolute difference between repeated gradients.

    0 if it is above `_ROUNDING_ULPS` ulps, which rounding does not explain.
    """
    found = []
    for number, primal in enumerate(subject.primals):
        own = subject.gradients[number]
        spread = max((largest(difference(answer, subject.gradients)[number]) for answer in again), default=0.0)
        bound = _ROUNDING_ULPS * torch.finfo(primal.tensor.dtype).eps * largest(own)
        found.append(spread if spread <= bound else 0.0)
    return tuple(found)


def _remark_on(spread: float) -> tuple[Finding, ...]:
    if spread == 0:
        return ()
    return (remark("GV406", f"the forward repeats to {spread:.3g} ulp of its largest entry: a sum in varying order"),)


def _spread(tape: Tape, other: Tape) -> float:
    """Return the largest difference between the outputs of two forwards, in ulps of their largest entry."""
    pairs = zip(outputs_of(tape), outputs_of(other), strict=False)
    eps = [torch.finfo(output.tensor.dtype).eps for output in tape.outputs]
    return max((_ulps(one, two, unit) for (one, two), unit in zip(pairs, eps, strict=False)), default=0.0)


def _pairs(answer: Coordinates, subject: Subject) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(answer, subject.gradients, strict=True)


def _ulps(one: Tensor, other: Tensor, eps: float = torch.finfo(torch.float64).eps) -> float:
    """Return the largest difference in ulps of the largest entry, inf if the shapes differ."""
    if one.shape != other.shape:
        return float("inf")
    distance = largest(one.nan_to_num() - other.nan_to_num())
    return distance / (eps * max(largest(one), largest(other), torch.finfo(torch.float64).tiny))
