"""GV602: in low precision, a gradient is as accurate as its dtype allows.

Backward is called in its own dtype. The reference, at the same numbers in float64, is torch's own derivative of the
same forward if there is one, else backward itself. An error is accepted if rounding of inputs and cotangents explains
it, or if torch's own derivative in that dtype is not much better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings, Tolerances
from gradverify.checks.contract.nodes import custom_nodes
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Coordinates, as_coordinates
from gradverify.checks.failures import evaluations, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.wording import distinguishable
from gradverify.core.forward.repeatable import in_double, made_repeatable
from gradverify.core.model.coordinates import flatten, unflatten, unravel
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.interception import plain_forwards
from gradverify.core.model.problem import Primal, Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict

NAME = "precision"
_NARROW = {"float16", "bfloat16", "float32"}
_POINTS = 6  # at which backward is called: one gradient may be right by luck
_OFTEN = 3  # points at which an entry has to be wrong: at fewer, it may be a tie or another branch
_ASIDE = 2.0**-6  # distance of the other points from the first, relative to each input
_SHAKES = 2  # perturbations of inputs and cotangents at each point
_ULPS = 1.0  # size of a perturbation in eps: twice the largest rounding error
_UNITS = 8.0  # times the effect of perturbations plus rounding of the largest entry: larger errors are unexplained
_ALONE = 8.0  # times as much, if torch's own derivative is not known
_BETTER = 16.0  # times the error of torch's own derivative: up to here, an error is accepted
_SAME = 2.0**-6  # relative to the largest entry: difference of two float64 derivatives that count as equal


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare a backward in low precision with its derivative in float64. Raises EvaluationError."""
    if not problem.primals:
        return nothing_to_differentiate(NAME, problem, "no input is a floating or complex tensor that requires grad")
    dtypes = sorted({str(primal.tensor.dtype).removeprefix("torch.") for primal in problem.primals})
    if dtypes == ["float64"]:
        return skipped(NAME, problem, "float64 is what lower precision is held against: add float32 to `dtypes`")
    if not set(dtypes) <= _NARROW:
        reason = f"inputs in {', '.join(sorted(_NARROW))} are held against float64, found {' and '.join(dtypes)}"
        return skipped(NAME, problem, reason)
    tape = record(problem)
    reason = not_dense(tape.outputs)
    if not reason and not custom_nodes(tape):
        reason = "no hand-written Function here: torch's own derivatives are what others are measured by"
    if reason:
        return skipped(NAME, problem, reason)
    ready = made_repeatable(problem, tape, settings.seed)
    if ready is None or ready.problem.seed is not None:
        reason = "the forward draws random numbers, which are not the same in another precision"
        return skipped(NAME, problem, reason)
    sampled = in_double(ready).sampled
    if not sampled.backward_eps:
        reason = "forward does not take these inputs in float64, or computes something else there"
        return skipped(NAME, problem, reason)
    trials = _trials(problem, sampled.problem, tape)
    found = tuple(_findings(problem, trials, settings.tolerances))
    remark = (
        "" if trials[0].plain is not None else "; torch's own derivative of this forward is not there to compare with"
    )
    return CheckResult(
        check=NAME,
        verdict=Verdict.FAIL if found else Verdict.PASS,
        message=found[0].message if found else f"as exact as {' and '.join(dtypes)} can be{remark}",
        evaluations=evaluations(problem),
        findings=found,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A point and a cotangent, both representable in low precision."""

    point: Tensor  # (n,) float64
    cotangent: Tensor  # (m,) float64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """Gradients by one primal at several places, (places, entries)."""

    own: Tensor  # in low precision
    exact: Tensor  # in float64, by torch's own derivative if it is known
    explained: Tensor  # (entries,) largest change by perturbed inputs and cotangents, at any place
    plain: Tensor | None  # (entries,) largest error of torch's own derivative in low precision


def _trials(problem: Problem, wide: Problem, tape: Tape) -> list[_Trials]:
    """Return the gradients by each primal, also those of the problem `wide` in float64; raises EvaluationError."""
    places = [_place(problem, tape, number) for number in range(_POINTS)]
    own, finer = _answers(problem, places), _answers(wide, places)
    plain = _plain(problem, wide, places, finer)
    exact = finer if plain is None else plain.finer
    shaken = [_answers(wide, [_shaken(problem, place, time) for place in places]) for time in range(_SHAKES)]
    return [
        _Trials(
            own=own[number],
            exact=exact[number],
            explained=torch.stack([_difference(again[number], reference).amax(dim=0) for again in shaken]).amax(dim=0),
            plain=None if plain is None else _difference(plain.own[number], plain.finer[number]).amax(dim=0),
        )
        for number, reference in enumerate(finer)
    ]


def _findings(problem: Problem, trials: Sequence[_Trials], tolerances: Tolerances) -> Iterator[Finding]:
    """Yield a GV602 finding per primal with entries less accurate than its dtype, torch and the tolerances explain."""
    for primal, trial in zip(problem.primals, trials, strict=True):
        limits = torch.finfo(primal.tensor.dtype)
        errors = _difference(trial.own, trial.exact).masked_fill(trial.exact.abs() > limits.max / _UNITS, 0.0)
        explained = limits.eps * largest(trial.exact) + trial.explained
        allowed = (_UNITS * explained + limits.smallest_normal) * (1.0 if trial.plain is not None else _ALONE)
        if trial.plain is not None:
            allowed = torch.maximum(allowed, _BETTER * trial.plain)
        tolerated = (tolerances.atol or 0.0) + (tolerances.rtol or 0.0) * trial.exact.abs()
        wrong = errors > torch.maximum(allowed, tolerated)
        wrong &= wrong.sum(dim=0, keepdim=True) >= _OFTEN
        if bool(wrong.any()):
            yield Finding(
                code="GV602",
                verdict=Verdict.FAIL,
                wrt=primal.name,
                message=_worded(primal, trial, errors.masked_fill(~wrong, -1.0), explained),
                total=int(wrong.any(dim=0).sum()),
            )


def _worded(primal: Primal, trial: _Trials, errors: Tensor, explained: Tensor) -> str:
    """Return the message for the worst entry: of those at the given point, if any is wrong there."""
    number = 0 if bool((errors[0] >= 0).any()) else int(errors.amax(dim=1).argmax())
    place = int((errors[number] / explained).argmax())
    dtype = str(primal.tensor.dtype).removeprefix("torch.")
    count, entries = int((errors >= 0).any(dim=0).sum()), errors.shape[1]
    index = ", ".join(map(str, unravel(place, primal.tensor.shape)))
    got, right = distinguishable(float(trial.own[number, place]), float(trial.exact[number, place]))
    where = f"{primal.name}[{index}]" if index else primal.name
    near = "" if number == 0 else " close by"
    plain = "" if trial.plain is None else f", and torch's own derivative of this forward {_off_by(trial.plain[place])}"
    noun = f"{'entry' if entries == 1 else 'entries'} by {primal.name} {'is' if count == 1 else 'are'}"
    return (
        f"{count:,} of {entries:,} {noun} worse than {dtype} explains: for a random cotangent {where}{near} is {got}, "
        f"in float64 {right}; rounding of inputs and cotangents makes {float(explained[place]):.0e}{plain}"
    )


def _off_by(error: Tensor) -> str:
    return f"is off by {float(error):.0e}" if float(error) else "is exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """Gradients by torch's own derivative."""

    own: Coordinates  # in low precision
    finer: Coordinates  # in float64


def _plain(problem: Problem, wide: Problem, places: Sequence[_Place], backwards: Coordinates) -> _Plain | None:
    """Return torch's own derivative; None if there is none, or if it differs from backward's in float64."""
    with plain_forwards():
        try:
            if custom_nodes(record(wide)):
                return None  # some call of `apply` cannot be replaced
            finer = _answers(wide, places)
            if all(map(_alike, finer, backwards)):
                return _Plain(own=_answers(problem, places), finer=finer)
        except EvaluationError:
            pass
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool((_difference(one, other) <= _SAME * largest(other)).all()) and torch.equal(
        one.isfinite(), other.isfinite()
    )


def _answers(problem: Problem, places: Sequence[_Place]) -> Coordinates:
    """Return backward's gradients at each place, per primal: (places, entries); raises EvaluationError."""
    found = [_answered(problem, place) for place in places]
    return tuple(torch.stack(column) for column in zip(*found, strict=True))


def _answered(problem: Problem, place: _Place) -> Coordinates:
    tensors = unflatten(place.point, [primal.tensor for primal in problem.primals])
    primals = [replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True)]
    tape = record(replace(problem, primals=tuple(primals)))
    cotangents = unflatten(place.cotangent, [output.tensor for output in tape.outputs])
    with torch.no_grad():
        grads = vjp(problem, tape, cotangents)
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def _place(problem: Problem, tape: Tape, number: int) -> _Place:
    """Return random cotangents at the given point, for number 0, or at one nearby; all held by low precision."""
    tensors = [primal.tensor for primal in problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    point = flatten(tensors)
    if number:
        point = flatten(unflatten(point + random_magnitudes_from(_ASIDE * point.abs(), number), tensors))
    ones = torch.ones_like(flatten(outputs))
    return _Place(
        point=point.clone(), cotangent=flatten(unflatten(random_magnitudes_from(ones, 100 + number), outputs))
    )


def _shaken(problem: Problem, place: _Place, time: int) -> _Place:
    """Return the place with every number perturbed by about its rounding error."""
    eps = _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in problem.primals)
    point = place.point + random_magnitudes_from(eps * place.point.abs(), 200 + time)
    return _Place(
        point=point, cotangent=place.cotangent + random_magnitudes_from(eps * place.cotangent.abs(), 300 + time)
    )


def _difference(one: Tensor, other: Tensor) -> Tensor:
    """Return |one - other|: 0 where `other` is not finite, inf where only `one` is not."""
    return (one - other).abs().nan_to_num(math.inf, math.inf).masked_fill(~other.isfinite(), 0.0)
