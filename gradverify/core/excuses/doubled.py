"""Accusations of a backward in low precision whose formula is right: asked in double precision, it says what is so.

Where a sigmoid is one but for its last digits, 1 - p has few of them left. What is lost so is small beside the numbers
around, and says nothing against the formula; a wrong one is wrong in any precision.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from gradverify.core.excuses.grain import smallness
from gradverify.core.excuses.sharing import answered, questions, told
from gradverify.core.excuses.trial import Trial
from gradverify.core.function.analytic import Batched, Graph, Reuse
from gradverify.core.function.flags import any_set
from gradverify.core.function.tape import record
from gradverify.core.judging.compare import Code, Judged
from gradverify.core.numeric.samples import BAR_FACTOR
from gradverify.errors import EvaluationError

_RIGHT = 1e-5  # of an entry: as near as a right formula comes to it in double precision
_QUESTIONS = 64  # asked in double precision, at most: a row each, or several rows that no input is common to
_NUMBERS = 4_000_000  # held for them, at most


def excuse_doubled(trial: Trial, judged: Judged) -> Judged:
    """Take back small accusations where the same backward is right in double precision.

    Not of zeros: where nothing is left of an entry, nobody can tell rounding from a branch of low precision's own.
    """
    at, chosen = trial.at, trial.chosen
    small = (judged.code == Code.MISMATCH) & (judged.error <= smallness(at))
    if not at.sampled.coarse or not any_set(small):
        return judged
    asked = questions(at, trial.backward, chosen, small, min(_QUESTIONS, _NUMBERS // max(1, at.sampled.point.numel())))
    problem = at.sampled.problem
    try:
        finer = replace(
            trial.backward,
            problem=problem,
            tape=record(problem),
            graph=Graph(reuse=Reuse.FRESH),
            batched=Batched(believed=False),
        )
        said = told(answered(finer, asked), asked, at.moves.owner[chosen])
    except EvaluationError:
        return judged
    # What was not asked says zero, which is never right: an accused entry that keeps its sign is larger than its bar.
    right = (said - judged.numeric).abs() <= BAR_FACTOR * judged.bar + _RIGHT * judged.numeric.abs()
    alike = (at.claimed[chosen] * judged.numeric > 0) & (judged.error <= judged.numeric.abs())
    excused = small & right & alike
    return replace(
        judged,
        code=judged.code.masked_fill(excused, Code.MATCH),
        allowed=torch.where(excused, judged.error, judged.allowed),
    )
