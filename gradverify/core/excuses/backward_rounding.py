"""Rounding in backward, seen by its answers along a line and a few ulps apart."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, Graph, Reuse
from gradverify.core.decide.compare import is_resolved
from gradverify.core.decide.context import JudgingContext, of_moves
from gradverify.core.decide.verdict import Code, Judged, Reason, decide
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.excuses.trial import Questions, Trial, answered, questions, told
from gradverify.core.forward.ecnoise import PLACES, noise_in
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.noise import SAFETY
from gradverify.core.forward.step_noise import SPACINGS, lasting_in
from gradverify.core.model.coordinates import unflatten
from gradverify.core.model.magnitudes import any_set, identical
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.errors import EvaluationError

_UNITS = 128.0  # of rounding, that a claim may be off by
_DIGITS = 2.0  # and one of which nothing but such digits is left
_MOST = 2.0**-10  # but not by more than this, or than one unit, in whatever precision
_GRAIN_NUMBERS = 1_000_000  # answers held at a time, at most
_GRAIN_QUESTIONS = 16  # asked at every point, at most: a row each, or several rows that no input is common to
_MARGINAL = 1e-2  # an error below this part of its row may be rounding in backward
_NUMBERS = 4_000_000  # held for them, at most
_SPOILED = 1e-6  # where backward's own answers are further apart than this, nothing is known of the entry
_QUESTIONS = 64  # asked again, at most: a row each, or several rows that no input is common to
_MANY, _SOME = 1024, 2  # of more rows, so many questions say whether rounding explains any of them
_AGAIN = 3  # times more at the point itself, where backward does not say the same the second time
_ULPS = (2.0, 8.0, 21.0, 64.0)  # sizes of displacements, in ulps of each coordinate, with random signs
_ROUNDING = 2.0**-24  # of its row: answers further apart are no matter of rounding


def excuse_grain(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that are within what backward's answers resolve."""
    context, backward, chosen = trial.context, trial.backward, trial.chosen
    claimed = context.claimed[chosen]
    small = (judged.code == Code.MISMATCH) & (judged.error <= smallness(context))
    if not any_set(small):
        return judged
    asked = questions(
        context, backward, chosen, small, min(_GRAIN_QUESTIONS, _GRAIN_NUMBERS // max(1, context.sampled.point.numel()))
    )
    heard, around = (
        told(found, asked, context.column_groups.column_of[chosen]) for found in _grain(context, backward, asked)
    )
    unit = context.sampled.eps * around.clamp(max=1.0)
    lost = claimed == 0  # no digit is left, and what stands still moves in no stairs
    grain = torch.where(_only_last_digits(claimed, unit), _DIGITS * unit, 0.0)
    allowed = judged.allowed + torch.where(lost, _UNITS * unit, torch.maximum(BAR_FACTOR * heard, grain))
    excused = small & (judged.error <= allowed)
    allowance = of_moves(context.allowance, chosen)
    known = is_resolved(heard, torch.maximum(claimed.abs(), around), allowance)
    rules = [(excused, Reason.BACKWARD_RESOLUTION), (excused & ~known, Reason.BACKWARD_UNRESOLVED)]
    if any_set(excused):  # rows beyond the limit may be explained as well
        unheard = torch.zeros_like(small[0])
        unheard[asked.unasked] = True
        rules.append((small & unheard, Reason.NOT_EXAMINED))
    return decide(judged, rules, allowed=torch.where(excused, allowed, judged.allowed))


def smallness(context: JudgingContext) -> float:
    """Return what rounding of numbers around 1, or around the largest claim, may leave."""
    largest = float(context.claimed.abs().nan_to_num(0.0, 0.0, 0.0).max()) if context.claimed.numel() else 0.0
    return min(max(_MOST, context.sampled.eps), _UNITS * context.sampled.eps) * max(1.0, largest)


def excuse_spread(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that the spread of backward's own answers explains."""
    row_size = trial.context.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    marginal = (judged.code == Code.MISMATCH) & (judged.error <= _MARGINAL * row_size)
    if not any_set(marginal):
        return judged
    if int(marginal.any(dim=0).sum()) > _MANY and not any_set(_excused(trial, judged, marginal, row_size, _SOME)[0]):
        return judged
    excused, allowed, open_ = _excused(trial, judged, marginal, row_size, _QUESTIONS)
    rules = [(excused, Reason.BACKWARD_SCATTER), (open_, Reason.BACKWARD_UNRESOLVED)]
    return decide(judged, rules, allowed=torch.where(excused, allowed, judged.allowed))


def nearby(backward: Backward, point: Tensor) -> Backward:
    """Return backward at another point (n,); raises EvaluationError.

    Its graph is asked again and again where the one at hand has been, and else a fresh one each time.
    """
    problem = _at(backward.problem, point)
    shared = backward.graph.reuse is Reuse.SHARED
    graph = Graph(reuse=Reuse.SHARED if shared else Reuse.FRESH)
    return replace(backward, problem=problem, tape=record(problem), graph=graph)


def _only_last_digits(claimed: Tensor, unit: Tensor) -> Tensor:
    """Tell which claims are whole multiples of the last digit of numbers around, whose rounding is `unit`; all (C, m).

    On the last stairs before zero there may be too few of them to be heard.
    """
    _, power = torch.frexp(unit / 2)
    digit = torch.ldexp(torch.full_like(unit, 0.5), power)  # the power of two at or below half a unit
    return (digit > 0) & (claimed.remainder(digit.clamp(min=torch.finfo(torch.float64).tiny)) == 0)


def _grain(context: JudgingContext, backward: Backward, asked: Questions) -> tuple[Tensor, Tensor]:
    """Return how finely the answers to these questions resolve, and the largest ones around the point; both (K, n)."""
    heard, around = [], []
    for side in (own_or_shared(context.lengths), -own_or_shared(context.lengths)):
        found = []
        for spacing in SPACINGS:
            given = torch.stack([_answers(context, backward, asked, place * spacing * side) for place in PLACES])
            found.append(noise_in(given))
            around.append(given.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0))
        heard.append(lasting_in(torch.stack(found)))
    shape = (len(asked.cotangents), context.sampled.point.numel())
    return SAFETY * torch.stack(heard).amax(dim=0).view(shape), torch.stack(around).amax(dim=0).view(shape)


def _answers(context: JudgingContext, backward: Backward, asked: Questions, displacement: Tensor) -> Tensor:
    """Return the answers at a point close by, one after the other; what raises is no number."""
    try:
        return answered(nearby(backward, context.sampled.point + displacement), asked).reshape(-1)
    except EvaluationError:
        shape = (len(asked.cotangents) * len(displacement),)
        return torch.full(shape, torch.nan, dtype=torch.float64, device=displacement.device)


def _excused(
    trial: Trial, judged: Judged, marginal: Tensor, row_size: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which accusations not more than so many questions explain, what they allow, and what they leave open.

    Each is (C, m).
    """
    context = trial.context
    asked = questions(
        context, trial.backward, trial.chosen, marginal, min(most, _NUMBERS // max(1, len(context.sampled.point)))
    )
    repeated, rounded = _repeated(trial, asked), _rounded(trial, asked, _ROUNDING * row_size)
    allowed = judged.allowed + BAR_FACTOR * torch.maximum(repeated, rounded)
    excused = marginal & (judged.error <= allowed)
    own = torch.maximum(context.claimed[trial.chosen].abs(), judged.numeric.abs())
    unknown = (BAR_FACTOR * repeated > _SPOILED * row_size) | (BAR_FACTOR * rounded > _SPOILED * own)
    return excused, allowed, excused & unknown


def _repeated(trial: Trial, asked: Questions) -> Tensor:
    """Return how far the answers at the point are apart, each on a graph of its own; (C, m)."""
    claimed, point = trial.context.claimed[trial.chosen], trial.context.sampled.point
    found = [claimed, _told(trial, asked, point)]
    if not identical(*found):
        found += [_told(trial, asked, point) for _ in range(_AGAIN)]
    return _range(torch.stack(found))


def _rounded(trial: Trial, asked: Questions, most: Tensor) -> Tensor:
    """Return how far the middles of opposite answers around are apart, 0 where answers are by more than `most` (m,)."""
    point, answers, middles = trial.context.sampled.point, [], []
    for ulps in _ULPS:
        far = _displacement(point, ulps)
        pair = [_told(trial, asked, point + side * far) for side in (1.0, -1.0)]
        answers += pair
        middles.append((pair[0] + pair[1]) / 2)
    return torch.where(_range(torch.stack(answers)) <= most, _range(torch.stack(middles)), 0.0)


def _told(trial: Trial, asked: Questions, point: Tensor) -> Tensor:
    """Return what backward says of the entries at a point, and the claims where it says nothing; (C, m)."""
    column_of, claimed = trial.context.column_groups.column_of[trial.chosen], trial.context.claimed[trial.chosen]
    try:
        found = answered(nearby(trial.backward, point), asked)
    except EvaluationError:
        return claimed
    known = (told(torch.ones_like(found), asked, column_of) > 0).logical_and_(claimed.isfinite())
    answers = told(found, asked, column_of)
    return torch.where(known & answers.isfinite(), answers, claimed)


def _range(found: Tensor) -> Tensor:
    """Return how far numbers (N, ...) are apart, 0 where they are none."""
    return (found.amax(dim=0) - found.amin(dim=0)).nan_to_num(0.0, 0.0, 0.0)


def _displacement(point: Tensor, ulps: float) -> Tensor:
    generator = torch.Generator().manual_seed(int(ulps))
    signs = torch.where(torch.rand(point.shape, generator=generator) < 0.5, -1.0, 1.0).to(point)
    return ulps * torch.finfo(torch.float64).eps * signs * point


def _at(problem: Problem, point: Tensor) -> Problem:
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
