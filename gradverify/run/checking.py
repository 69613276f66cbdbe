"""Checks on a problem: the one path that the runner and the Python API share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradverify.case import Case, Settings, Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.function.problem import Problem
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult


def run_checks(problem: Problem, checks: Sequence[str], settings_of: Mapping[str, Settings]) -> tuple[CheckResult, ...]:
    """Run each check with its own settings, in the order given; they seed all generators."""
    return tuple(run_check(name, problem, settings_of[name], diagnose) for name in checks)


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
