"""GV602: in low precision, a gradient has the digits that its dtype has room for.

Backward is asked in its own dtype, and at the same numbers in float64: torch's own derivative of the same forward
where there is one, else backward itself. Rounding of inputs and cotangents explains what float64 makes of such as are
off by that much; and than torch's own derivative in that dtype, nobody need do better.
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
from gradverify.checks.contract.subject import Answer, as_coordinates
from gradverify.checks.failures import evaluations, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.wording import told_apart
from gradverify.core.forward.precision import in_double
from gradverify.core.forward.repeatable import steady
from gradverify.core.model.coordinates import flatten, unflatten, unravel
from gradverify.core.model.decomposed import plainly
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.problem import Primal, Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict

NAME = "precision"
_NARROW = {"float16", "bfloat16", "float32"}
_POINTS = 6  # at which backward is asked: one answer may be right by luck
_OFTEN = 3  # of them at which an entry has to be off: a tie, or another branch, is one's own
_ASIDE = 2.0**-6  # how far the others are from the first, relative to each input
_SHAKES = 2  # times that inputs and cotangents are shaken at each of them
_ULPS = 1.0  # by which they are, twice what rounding is at most
_UNITS = 8.0  # times what shaking shows, and the rounding of the largest entry: more is not explained
_ALONE = 8.0  # times as much, where nobody says what torch would lose
_BETTER = 16.0  # times less is what torch must lose, to say that backward need not
_SAME = 2.0**-6  # of the largest entry: what two accounts of one derivative may differ by in float64


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Hold a backward in low precision against itself in float64. Raises EvaluationError."""
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
    ready = steady(problem, tape, settings.seed)
    if ready is None or ready.problem.seed is not None:
        reason = "the forward draws random numbers, which are not the same in another precision"
        return skipped(NAME, problem, reason)
    sampled = in_double(ready).sampled
    if not sampled.coarse:
        reason = "forward does not take these inputs in float64, or computes something else there"
        return skipped(NAME, problem, reason)
    trials = _trials(problem, sampled.problem, tape)
    found = tuple(_findings(problem, trials, settings.tolerances))
    beside = (
        "" if trials[0].plain is not None else "; torch's own derivative of this forward is not there to compare with"
    )
    return CheckResult(
        check=NAME,
        verdict=Verdict.FAIL if found else Verdict.PASS,
        message=found[0].message if found else f"as exact as {' and '.join(dtypes)} can be{beside}",
        evaluations=evaluations(problem),
        findings=found,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One point and one cotangent, both of which low precision holds."""

    point: Tensor  # (n,) float64
    cotangent: Tensor  # (m,) float64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """What was answered at several places about one primal, its entries in a row for each: (places, entries)."""

    own: Tensor  # in low precision
    exact: Tensor  # in float64, by torch where it can
    explained: Tensor  # (entries,) the most that shaking inputs and cotangents changed at any place
    plain: Tensor | None  # (entries,) the most that torch's own derivative is off by


def _trials(problem: Problem, wide: Problem, tape: Tape) -> list[_Trials]:
    """Return what was answered about each primal, also as `wide` in float64; raises EvaluationError."""
    places = [_place(problem, tape, number) for number in range(_POINTS)]
    own, finer = _answers(problem, places), _answers(wide, places)
    plain = _plain(problem, wide, places, finer)
    exact = finer if plain is None else plain.finer
    shaken = [_answers(wide, [_shaken(problem, place, time) for place in places]) for time in range(_SHAKES)]
    return [
        _Trials(
            own=own[number],
            exact=exact[number],
            explained=torch.stack([_apart(again[number], mine).amax(dim=0) for again in shaken]).amax(dim=0),
            plain=None if plain is None else _apart(plain.own[number], plain.finer[number]).amax(dim=0),
        )
        for number, mine in enumerate(finer)
    ]


def _findings(problem: Problem, trials: Sequence[_Trials], tolerances: Tolerances) -> Iterator[Finding]:
    """GV602: per primal, the entries that lose more than its dtype explains, than torch would and than was allowed."""
    for primal, tried in zip(problem.primals, trials, strict=True):
        limits = torch.finfo(primal.tensor.dtype)
        off = _apart(tried.own, tried.exact).masked_fill(tried.exact.abs() > limits.max / _UNITS, 0.0)
        explained = limits.eps * largest(tried.exact) + tried.explained
        allowed = (_UNITS * explained + limits.smallest_normal) * (1.0 if tried.plain is not None else _ALONE)
        if tried.plain is not None:
            allowed = torch.maximum(allowed, _BETTER * tried.plain)
        asked = (tolerances.atol or 0.0) + (tolerances.rtol or 0.0) * tried.exact.abs()
        wrong = off > torch.maximum(allowed, asked)
        wrong &= wrong.sum(dim=0, keepdim=True) >= _OFTEN
        if bool(wrong.any()):
            yield Finding(
                code="GV602",
                verdict=Verdict.FAIL,
                wrt=primal.name,
                message=_told(primal, tried, off.masked_fill(~wrong, -1.0), explained),
                total=int(wrong.any(dim=0).sum()),
            )


def _told(primal: Primal, tried: _Trials, off: Tensor, explained: Tensor) -> str:
    """Return what is lost in the worst entry: at the point given, if anything is lost there."""
    number = 0 if bool((off[0] >= 0).any()) else int(off.amax(dim=1).argmax())
    place = int((off[number] / explained).argmax())
    dtype = str(primal.tensor.dtype).removeprefix("torch.")
    count, entries = int((off >= 0).any(dim=0).sum()), off.shape[1]
    index = ", ".join(map(str, unravel(place, primal.tensor.shape)))
    got, right = told_apart(float(tried.own[number, place]), float(tried.exact[number, place]))
    where = f"{primal.name}[{index}]" if index else primal.name
    near = "" if number == 0 else " close by"
    plain = "" if tried.plain is None else f", and torch's own derivative of this forward {_off_by(tried.plain[place])}"
    noun = f"{'entry' if entries == 1 else 'entries'} by {primal.name} {'is' if count == 1 else 'are'}"
    return (
        f"{count:,} of {entries:,} {noun} worse than {dtype} explains: for a random cotangent {where}{near} is {got}, "
        f"in float64 {right}; rounding of inputs and cotangents makes {float(explained[place]):.0e}{plain}"
    )


def _off_by(error: Tensor) -> str:
    return f"is off by {float(error):.0e}" if float(error) else "is exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """What torch's own derivative says."""

    own: Answer  # in low precision
    finer: Answer  # in float64


def _plain(problem: Problem, wide: Problem, places: Sequence[_Place], backwards: Answer) -> _Plain | None:
    """Return torch's own derivative, None where there is none, or it is another one than backward's in float64."""
    with plainly():
        try:
            if custom_nodes(record(wide)):
                return None  # some `apply` is out of reach
            finer = _answers(wide, places)
            if all(map(_alike, finer, backwards)):
                return _Plain(own=_answers(problem, places), finer=finer)
        except EvaluationError:
            pass
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool((_apart(one, other) <= _SAME * largest(other)).all()) and torch.equal(one.isfinite(), other.isfinite())


def _answers(problem: Problem, places: Sequence[_Place]) -> Answer:
    """Return what backward says at each place, per primal: (places, entries); raises EvaluationError."""
    found = [_answered(problem, place) for place in places]
    return tuple(torch.stack(column) for column in zip(*found, strict=True))


def _answered(problem: Problem, place: _Place) -> Answer:
    tensors = unflatten(place.point, [primal.tensor for primal in problem.primals])
    primals = [replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True)]
    tape = record(replace(problem, primals=tuple(primals)))
    cotangents = unflatten(place.cotangent, [output.tensor for output in tape.outputs])
    with torch.no_grad():
        grads = vjp(problem, tape, cotangents)
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def _place(problem: Problem, tape: Tape, number: int) -> _Place:
    """Return the point given, for number 0, or one close by, and random cotangents; in numbers of low precision."""
    tensors = [primal.tensor for primal in problem.primals]
    outputs = [output.tensor for output in tape.outputs]
    point = flatten(tensors)
    if number:
        point = flatten(unflatten(point + scattered_from(_ASIDE * point.abs(), number), tensors))
    ones = torch.ones_like(flatten(outputs))
    return _Place(point=point.clone(), cotangent=flatten(unflatten(scattered_from(ones, 100 + number), outputs)))


def _shaken(problem: Problem, place: _Place, time: int) -> _Place:
    """Return the place with every number off by about as much as rounding."""
    eps = _ULPS * max(torch.finfo(primal.tensor.dtype).eps for primal in problem.primals)
    point = place.point + scattered_from(eps * place.point.abs(), 200 + time)
    return _Place(point=point, cotangent=place.cotangent + scattered_from(eps * place.cotangent.abs(), 300 + time))


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Return how far answers are apart: 0 where the other is no number, infinite where only the one is none."""
    return (one - other).abs().nan_to_num(math.inf, math.inf).masked_fill(~other.isfinite(), 0.0)
