"""Checks on a problem: the one path that the runner and the Python API share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gradverify.case import Case, Settings, Tolerances
from gradverify.checks import gradcheck, gradgradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult
from gradverify.run.no_answer import with_rest
from gradverify.run.surrogate import Surrogate, gradcheck_held_against

Tell = Callable[[tuple[CheckResult, ...]], None]


def told_to_nobody(_finished: tuple[CheckResult, ...]) -> None:
    """Ignore results until all of them are there."""


def run_checks(
    problem: Problem,
    checks: Sequence[str],
    settings_of: Mapping[str, Settings],
    tell: Tell = told_to_nobody,
    surrogate: Surrogate | None = None,
) -> tuple[CheckResult, ...]:
    """Run each check with its own settings, in the order given; they seed all generators.

    `tell` is called with the results so far before the first check and after each. Checks after one that ran out of
    time are skipped. Where there is a surrogate, gradcheck takes differences of it, and gradgradcheck its kinks for
    those of forward.
    """
    finished: tuple[CheckResult, ...] = ()
    tell(finished)
    for name in checks:
        finished = (*finished, _run(name, problem, settings_of[name], surrogate))
        tell(finished)
        if any(finding.code == "GV904" for finding in finished[-1].findings):
            break
    return with_rest(finished, checks)


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
