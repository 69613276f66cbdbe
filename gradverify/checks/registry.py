"""All checks. A new check is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from gradverify.case import Settings
from gradverify.checks import batching, compiling, forward_ad, gradcheck, gradgradcheck, precision
from gradverify.checks.accumulated import with_backward, without_accumulated
from gradverify.checks.contract import check as contract
from gradverify.checks.default_device import cpu_by_default
from gradverify.checks.failures import failed_call, inconclusive, not_dense, skipped, timed_out
from gradverify.checks.parity import check as parity
from gradverify.checks.reference import check as reference
from gradverify.core.model.generators import seed_everywhere
from gradverify.core.model.limits import keep_freed_memory
from gradverify.core.model.problem import Meter, Problem
from gradverify.deadline import OutOfTime
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, undiagnosed
from gradverify.result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a problem."""

    name: str
    run: Callable[[Problem, Settings, Diagnose], CheckResult]  # may raise EvaluationError
    undetermined: str = ""  # code of an inconclusive result; "" if it skips instead


def _causeless(run: Callable[[Problem, Settings], CheckResult]) -> Callable[[Problem, Settings, Diagnose], CheckResult]:
    """Adapt a check that compares no Jacobians, and so takes no `diagnose`."""

    def without_diagnosis(problem: Problem, settings: Settings, diagnose: Diagnose) -> CheckResult:
        del diagnose
        return run(problem, settings)

    return without_diagnosis


CHECKS = (
    Check(name=gradcheck.NAME, run=gradcheck.run, undetermined="GV104"),
    Check(name=gradgradcheck.NAME, run=gradgradcheck.run, undetermined="GV204"),
    Check(name=contract.NAME, run=_causeless(contract.run)),
    Check(name=forward_ad.NAME, run=_causeless(forward_ad.run)),
    Check(name=batching.NAME, run=_causeless(batching.run)),
    Check(name=compiling.NAME, run=_causeless(compiling.run)),
    Check(name=precision.NAME, run=_causeless(precision.run)),
    Check(name=reference.NAME, run=reference.run),
    Check(name=parity.NAME, run=_causeless(parity.run)),
)


def run_check(name: str, problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Run the named check; exceptions of user code and time-outs become findings. All generators are seeded.

    `diagnose` is called for the cause of every wrong block of a Jacobian.
    """
    found = next((check for check in CHECKS if check.name == name), None)
    if found is None:
        return skipped(name, problem, f"this version has no check called {name}")
    reason = not_dense(problem.primals)
    if reason and found.undetermined:
        return inconclusive(name, problem, found.undetermined, reason)
    if reason:
        return skipped(name, problem, reason)
    keep_freed_memory()
    result = guarded(found, problem, settings, diagnose)
    if all(finding.code != "GV903" for finding in result.findings):
        return without_accumulated(problem, found.undetermined, result)
    other = with_backward(problem, found.undetermined, lambda problem: guarded(found, problem, settings, diagnose))
    return result if other is None else other


def guarded(check: Check, problem: Problem, settings: Settings, diagnose: Diagnose) -> CheckResult:
    """Run a check; what user code raises, and a time-out, become findings. All generators are seeded."""
    problem = replace(problem, meter=Meter())  # each check counts its own evaluations
    with torch.no_grad(), cpu_by_default(problem) as problem:
        seed_everywhere(settings.seed)
        try:
            return check.run(problem, settings, diagnose)
        except EvaluationError as error:
            return failed_call(check.name, problem, error)
        except OutOfTime as error:
            return timed_out(check.name, problem, error)
