"""How well the claimed value is defined: what repetition and rounding of the inputs leave of it.

An accusation that is small beside its row is looked at again before it is raised: backward is asked once more on a
fresh graph, and at points a few units of float64 away, and what varies between the answers is not held against it.
Points lie in pairs, opposite each other. What is smooth, and what depends on the side of a threshold, is in the middle
of every pair the same, and where answers differ by more than rounding ever makes of them, they are those of branches.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.excuses.sharing import Questions, answered, questions, told
from gradverify.core.excuses.trial import Trial
from gradverify.core.function.analytic import Graph, Reuse, Reverse
from gradverify.core.function.coordinates import unflatten
from gradverify.core.function.flags import any_set
from gradverify.core.function.problem import Problem
from gradverify.core.function.sizes import identical
from gradverify.core.function.tape import record
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_MARGINAL = 1e-2  # an error below this part of its row may be rounding in backward
_NUMBERS = 4_000_000  # held for them, at most
_SPOILED = 1e-6  # where backward's own answers are further apart than this, nothing is known of the entry
_QUESTIONS = 64  # asked again, at most: a row each, or several rows that no input is common to
_MANY, _SOME = 1024, 2  # of more rows, so many questions say whether rounding explains any of them
_AGAIN = 3  # times more at the point itself, where backward does not say the same the second time
_ULPS = (2.0, 8.0, 21.0, 64.0)  # sizes of displacements, in ulps of each coordinate, with random signs
_ROUNDING = 2.0**-24  # of its row: answers further apart are no matter of rounding


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
    repeated, rounded = _repeated(trial, asked), _rounded(trial, asked, _ROUNDING * row_size)
    allowed = judged.allowed + BAR_FACTOR * torch.maximum(repeated, rounded)
    excused = marginal & (judged.error <= allowed)
    own = torch.maximum(at.claimed[trial.chosen].abs(), judged.numeric.abs())
    unknown = (BAR_FACTOR * repeated > _SPOILED * row_size) | (BAR_FACTOR * rounded > _SPOILED * own)
    return excused, allowed, excused & unknown


def _repeated(trial: Trial, asked: Questions) -> Tensor:
    """Return how far the answers at the point are apart, each on a graph of its own; (C, m)."""
    claimed, point = trial.at.claimed[trial.chosen], trial.at.sampled.point
    found = [claimed, _told(trial, asked, point)]
    if not identical(*found):
        found += [_told(trial, asked, point) for _ in range(_AGAIN)]
    return _range(torch.stack(found))


def _rounded(trial: Trial, asked: Questions, most: Tensor) -> Tensor:
    """Return how far the middles of opposite answers around are apart, 0 where answers are by more than `most` (m,)."""
    point, answers, middles = trial.at.sampled.point, [], []
    for ulps in _ULPS:
        far = _displacement(point, ulps)
        pair = [_told(trial, asked, point + side * far) for side in (1.0, -1.0)]
        answers += pair
        middles.append((pair[0] + pair[1]) / 2)
    return torch.where(_range(torch.stack(answers)) <= most, _range(torch.stack(middles)), 0.0)


def _told(trial: Trial, asked: Questions, point: Tensor) -> Tensor:
    """Return what backward says of the entries at a point, and the claims where it says nothing; (C, m)."""
    owner, claimed = trial.at.moves.owner[trial.chosen], trial.at.claimed[trial.chosen]
    try:
        found = answered(nearby(trial.backward, point), asked)
    except EvaluationError:
        return claimed
    known = (told(torch.ones_like(found), asked, owner) > 0).logical_and_(claimed.isfinite())
    answers = told(found, asked, owner)
    return torch.where(known & answers.isfinite(), answers, claimed)


def _range(found: Tensor) -> Tensor:
    """Return how far numbers (N, ...) are apart, 0 where they are none."""
    return (found.amax(dim=0) - found.amin(dim=0)).nan_to_num(0.0, 0.0, 0.0)


def nearby(backward: Reverse, point: Tensor) -> Reverse:
    """Return backward at another point (n,); raises EvaluationError.

    Its graph is asked again and again where the one at hand has been, and else a fresh one each time.
    """
    problem = _at(backward.problem, point)
    shared = backward.graph.reuse is Reuse.SHARED
    graph = Graph(reuse=Reuse.SHARED if shared else Reuse.FRESH)
    return replace(backward, problem=problem, tape=record(problem), graph=graph)


def _displacement(point: Tensor, ulps: float) -> Tensor:
    generator = torch.Generator().manual_seed(int(ulps))
    signs = torch.where(torch.rand(point.shape, generator=generator) < 0.5, -1.0, 1.0).to(point)
    return ulps * torch.finfo(torch.float64).eps * signs * point


def _at(problem: Problem, point: Tensor) -> Problem:
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
