"""How well the claimed value is defined: what repetition and rounding of the inputs leave of it.

An accusation that is small beside its row is looked at again before it is raised: backward is asked once more on a
fresh graph, and at points a few ulps away, and what varies between the answers is not held against it. Where those a
few ulps away agree with each other, that they differ from the answer at the point is no rounding, nor is it where they
are one of two answers, far apart, as on either side of a threshold that the point is at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.sharing import Questions, answered, questions, told
from gradverify.core.excuses.trial import Trial
from gradverify.core.function.analytic import Graph, Reuse, Reverse
from gradverify.core.function.coordinates import unflatten
from gradverify.core.function.flags import any_set
from gradverify.core.function.problem import Problem
from gradverify.core.function.tape import record
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_MARGINAL = 1e-2  # an error below this part of its row may be rounding in backward
_NUMBERS = 4_000_000  # held for them, at most
_SPOILED = 1e-6  # where backward's own answers are further apart than this, nothing is known of the entry
_QUESTIONS = 64  # asked again, at most: a row each, or several rows that no input is common to
_MANY, _SOME = 1024, 2  # of more rows, so many questions say whether rounding explains any of them
_ULPS = (2.0, 3.0, 5.0, 8.0, 21.0, 64.0)  # sizes of displacements, in ulps of each coordinate; signs are random
_MORE = tuple(float(ulps) for ulps in range(9, 20))  # where the answers by these are two, and either might be one
_NO_BRANCH = 1e-9  # of its row: answers so little apart are of one branch


def excuse_spread(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that the spread of backward's own answers explains."""
    row_size = trial.at.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    marginal = (judged.code == Code.MISMATCH) & (judged.error <= _MARGINAL * row_size)
    if not any_set(marginal):
        return judged
    if int(marginal.any(dim=0).sum()) > _MANY and not any_set(_excused(trial, judged, marginal, row_size, _SOME)[0]):
        return judged
    excused, allowed, open_ = _excused(trial, judged, marginal, row_size, _QUESTIONS)
    code = judged.code.masked_fill(excused, Code.MATCH).masked_fill(open_, Code.UNDETERMINED)
    return replace(judged, allowed=torch.where(excused, allowed, judged.allowed), code=code)


def _excused(
    trial: Trial, judged: Judged, marginal: Tensor, row_size: Tensor, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which accusations not more than so many questions explain, what they allow, and what they leave open.

    Each is (C, m).
    """
    at = trial.at
    asked = questions(at, trial.backward, trial.chosen, marginal, min(most, _NUMBERS // max(1, len(at.sampled.point))))
    repeated, every = _repeated(trial, asked), _around(trial, asked, _ULPS)
    possible = BAR_FACTOR * (every.amax(dim=0) - every.amin(dim=0))
    apart = scatter(every, _NO_BRANCH * row_size)
    if any_set(marginal & (judged.error <= possible) & (judged.error > BAR_FACTOR * apart)):
        apart = scatter(torch.cat([every, _around(trial, asked, _MORE)]), _NO_BRANCH * row_size)
    spread = torch.maximum(repeated, apart)
    allowed = judged.allowed + BAR_FACTOR * spread
    excused = marginal & (judged.error <= allowed)
    return excused, allowed, excused & (BAR_FACTOR * spread > _SPOILED * row_size)


def _repeated(trial: Trial, asked: Questions) -> Tensor:
    """Return how far the answers are from the claims where they are asked for again, on a fresh graph; (C, m)."""
    owner, claimed = trial.at.moves.owner[trial.chosen], trial.at.claimed[trial.chosen]
    try:
        found = answered(nearby(trial.backward, trial.at.sampled.point), asked)
    except EvaluationError:
        return torch.zeros_like(claimed)
    known = told(torch.ones_like(found), asked, owner) > 0
    return torch.where(known, told(found, asked, owner) - claimed, 0.0).abs().nan_to_num(0.0)


def _around(trial: Trial, asked: Questions, displacements: Sequence[float]) -> Tensor:
    """Return the answers some ulps away, those that raise left out, or zeros where all do; (N, C, m)."""
    found, owner = [], trial.at.moves.owner[trial.chosen]
    for ulps in displacements:
        try:
            answers = answered(nearby(trial.backward, _displaced(trial.at.sampled.point, ulps)), asked)
        except EvaluationError:
            continue
        found.append(told(answers, asked, owner))
    return torch.stack(found or [torch.zeros(owner.shape, dtype=torch.float64, device=owner.device)])


def scatter(found: Tensor, step: Tensor) -> Tensor:
    """Return how far numbers (N, ...) are apart, but for the widest gap, where it is wider than a `step` (...)."""
    ordered = found.sort(dim=0).values
    apart = ordered[-1] - ordered[0]
    widest = ordered.diff(dim=0).amax(dim=0) if len(ordered) > 1 else apart
    return torch.maximum(apart - widest, torch.minimum(apart, step)).nan_to_num(0.0, 0.0, 0.0)


def nearby(backward: Reverse, point: Tensor) -> Reverse:
    """Return backward at another point (n,); raises EvaluationError.

    Its graph is asked again and again where the one at hand has been, and else a fresh one each time.
    """
    problem = _at(backward.problem, point)
    shared = backward.graph.reuse is Reuse.SHARED
    graph = Graph(reuse=Reuse.SHARED if shared else Reuse.FRESH)
    return replace(backward, problem=problem, tape=record(problem), graph=graph)


def _displaced(point: Tensor, ulps: float) -> Tensor:
    generator = torch.Generator().manual_seed(int(ulps))
    signs = torch.where(torch.rand(point.shape, generator=generator) < 0.5, -1.0, 1.0).to(point)
    return point * (1 + ulps * signs * torch.finfo(torch.float64).eps)


def _at(problem: Problem, point: Tensor) -> Problem:
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
