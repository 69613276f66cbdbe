"""Is backward's own derivative consistent with backward, by inputs and by cotangents?"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.derivative import Question, judge, settled, unjudgeable
from gradverify.checks.disagreement import beside
from gradverify.checks.failures import failed_call, inconclusive, skipped
from gradverify.checks.gradcheck import RANDOM
from gradverify.checks.torch_gradcheck import run_gradgradcheck
from gradverify.core.columns import Bench
from gradverify.core.compare import Code, Judged
from gradverify.core.evidence import Diagnose, undiagnosed
from gradverify.core.jacobians import Reconsider
from gradverify.core.kinks import kinked_columns
from gradverify.core.problem import Problem
from gradverify.core.second_order import once_differentiable, vjp_problem
from gradverify.core.tape import Rejected, Tape, record
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult

NAME = "gradgradcheck"


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare every entry of the vjp's Jacobian; torch's gradgradcheck runs beside it. Raises EvaluationError."""
    steady = settled(problem, settings)
    if steady is None:
        return inconclusive(NAME, problem, "GV204", RANDOM)
    tape = record(steady)
    nothing = unjudgeable(NAME, steady, tape)
    if nothing is not None:
        return nothing
    try:
        if once_differentiable(steady):
            return skipped(NAME, steady, "backward is declared @once_differentiable: it has no derivative of its own")
    except Rejected:
        return skipped(
            NAME, steady, "autograd rejects what backward returned, see gradcheck: there is no vjp to differentiate"
        )
    torchs = run_gradgradcheck(steady, settings, tape)
    try:
        second = vjp_problem(steady, tape, settings.seed)
        reconsider = _kinks_of(steady, tape, settings)
        question = Question(check=NAME, series=200, settings=settings, reconsider=reconsider, diagnose=diagnose)
        found = judge(question, second, record(second))
    except EvaluationError as error:
        missing = _not_implemented(error)
        found = skipped(NAME, steady, missing) if missing else failed_call(NAME, steady, error)
    return beside(found, torchs)


def _not_implemented(error: EvaluationError) -> str:
    """Return the reason why backward, by its own word, cannot be differentiated, "" where it says no such thing."""
    if isinstance(error.original, NotImplementedError | RuntimeError) and "is not implemented" in str(error.original):
        return f"backward has no derivative of its own: {str(error.original).splitlines()[0]}"
    return ""


def _kinks_of(problem: Problem, tape: Tape, settings: Settings) -> Reconsider:
    """Where the forward has a kink, the vjp jumps: such a jump is the kink's, not a question of its own."""

    def reconsider(at: Bench, chosen: Tensor, judged: Judged) -> Judged:
        jumps = judged.code == Code.JUMP
        if not bool(jumps.any()):
            return judged
        owner = at.moves.owner[chosen]
        columns = torch.unique(owner[jumps])
        kinked = columns[kinked_columns(problem, tape, columns, settings.seed)]
        code = judged.code.clone()
        number = torch.isfinite(at.claimed[chosen])  # what is no number lies between no slopes
        code[jumps & torch.isin(owner, kinked)] = Code.KINK
        code[jumps & ~number] = Code.MISMATCH
        return replace(judged, code=code)

    return reconsider
