"""How well the claimed value is defined: what repetition and rounding of the inputs leave of it.

An accusation that is small beside its row is looked at again before it is raised: backward is asked once more on a
fresh graph, and at points a few ulps away, and what varies between the answers is not held against it.
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
from gradverify.core.function.tape import record
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_MARGINAL = 1e-2  # an error below this part of its row may be rounding in backward
_NUMBERS = 4_000_000  # held for them, at most
_SPOILED = 1e-6  # where backward's own answers are further apart than this, nothing is known of the entry
_QUESTIONS = 64  # asked again, at most: a row each, or several rows that no input is common to
_ULPS = (0.0, 2.0, 8.0, 64.0)  # sizes of the displacements, in ulps of each coordinate, with random signs


def excuse_spread(trial: Trial, judged: Judged) -> Judged:
    """Take back accusations that the spread of backward's own answers explains."""
    at, backward, chosen = trial.at, trial.backward, trial.chosen
    row_size = at.claimed.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    marginal = (judged.code == Code.MISMATCH) & (judged.error <= _MARGINAL * row_size)
    if not any_set(marginal):
        return judged
    asked = questions(at, backward, chosen, marginal, min(_QUESTIONS, _NUMBERS // max(1, at.sampled.point.numel())))
    spread = told(_spread(at, backward, asked), asked, at.moves.owner[chosen])
    allowed = judged.allowed + BAR_FACTOR * spread
    code = judged.code.clone()
    excused = marginal & (judged.error <= allowed)
    code[excused] = Code.MATCH
    code[excused & (BAR_FACTOR * spread > _SPOILED * row_size)] = Code.UNDETERMINED
    return replace(judged, allowed=torch.where(excused, allowed, judged.allowed), code=code)


def _spread(at: Bench, backward: Reverse, asked: Questions) -> Tensor:
    """Return how far backward's answers to these questions are apart; (K, n)."""
    found = []
    for ulps in _ULPS:
        try:
            found.append(answered(nearby(backward, _displaced(at.sampled.point, ulps)), asked))
        except EvaluationError:
            continue
    if not found:
        return torch.zeros(len(asked.cotangents), at.sampled.point.numel(), dtype=torch.float64)
    every = torch.stack(found)
    return (every.amax(dim=0) - every.amin(dim=0)).nan_to_num(0.0)


def nearby(backward: Reverse, point: Tensor) -> Reverse:
    """Return backward at another point (n,), asked on fresh graphs; raises EvaluationError."""
    problem = _at(backward.problem, point)
    return replace(backward, problem=problem, tape=record(problem), graph=Graph(reuse=Reuse.FRESH))


def _displaced(point: Tensor, ulps: float) -> Tensor:
    generator = torch.Generator().manual_seed(int(ulps))
    signs = torch.where(torch.rand(point.shape, generator=generator) < 0.5, -1.0, 1.0).to(point)
    return point * (1 + ulps * signs * torch.finfo(torch.float64).eps)


def _at(problem: Problem, point: Tensor) -> Problem:
    tensors = unflatten(point, [primal.tensor for primal in problem.primals])
    primals = tuple(replace(primal, tensor=tensor) for primal, tensor in zip(problem.primals, tensors, strict=True))
    return replace(problem, primals=primals)
