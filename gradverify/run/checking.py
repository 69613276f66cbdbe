"""Checks on a problem: the one path that the runner and the Python API share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradverify.case import Case, Settings, Tolerances
from gradverify.checks import gradcheck, gradgradcheck
from gradverify.checks.registry import run_check
from gradverify.core.function.problem import Problem
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult
from gradverify.run.surrogate import Surrogate, gradcheck_held_against


def run_checks(
    problem: Problem, checks: Sequence[str], settings_of: Mapping[str, Settings], surrogate: Surrogate | None = None
) -> tuple[CheckResult, ...]:
    """Run each check with its own settings, in the order given; they seed all generators.

    Where there is a surrogate, gradcheck takes differences of it, and gradgradcheck its kinks for those of forward.
    """
    return tuple(_run(name, problem, settings_of[name], surrogate) for name in checks)


def _run(name: str, problem: Problem, settings: Settings, surrogate: Surrogate | None) -> CheckResult:
    if surrogate is None:
        return run_check(name, problem, settings, diagnose)
    if name == gradcheck.NAME:
        return gradcheck_held_against(surrogate, settings, diagnose)
    return run_check(name, surrogate.problem if name == gradgradcheck.NAME else problem, settings, diagnose)


def settings_of(case: Case) -> dict[str, Settings]:
    """Return the settings of each of a case's checks."""
    return {
        name: Settings(
            tolerances=case.tolerances.get(name, Tolerances()),
            seed=case.seed,
            torch_gradcheck=case.torch_gradcheck,
            max_elements=case.max_elements,
            max_evaluations=case.max_evaluations,
        )
        for name in case.checks
    }
