"""Is backward the derivative of forward, in every entry of the Jacobian?"""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.checks.derivative import Question, judge, settled, unjudgeable
from gradverify.checks.disagreement import beside
from gradverify.checks.failures import failed_call, inconclusive
from gradverify.checks.torch_gradcheck import run_gradcheck
from gradverify.core.evidence import Diagnose, undiagnosed
from gradverify.core.jacobians import as_judged
from gradverify.core.problem import Problem
from gradverify.core.tape import record
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult

NAME = "gradcheck"
RANDOM = "the forward is random: it differs between two calls at one point, even when seeded before each"


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare every entry with finite differences; torch's gradcheck runs beside it. Raises EvaluationError."""
    steady = settled(problem, settings)
    if steady is None:
        return inconclusive(NAME, problem, "GV104", RANDOM)
    tape = record(steady)
    result = unjudgeable(NAME, steady, tape)
    if result is not None:
        return result
    torchs = run_gradcheck(steady, settings, tape)
    try:
        question = Question(check=NAME, series=100, settings=settings, reconsider=as_judged, diagnose=diagnose)
        found = judge(question, steady, tape)
    except EvaluationError as error:
        found = failed_call(NAME, steady, error)
    return beside(found, torchs)
