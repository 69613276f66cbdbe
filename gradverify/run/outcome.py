"""Build the results of cases that were run, could not be run, or were skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradverify.case import Case
from gradverify.paths import shown_target
from gradverify.problem import BROKEN_OFF, found_at
from gradverify.result import CaseResult, CheckResult, Exploration, Source, Uncovered, Verdict, worst
from gradverify.run.expectations import expected_verdict, is_as_expected, unmet_expectation, with_claim
from gradverify.usage import Measured


def case_result(
    case: Case,
    checks: Sequence[CheckResult],
    *,
    source: Source | None,
    seconds: float,
    measured: Measured | None = None,
    explored: Exploration | None = None,
    uncovered: tuple[Uncovered, ...] = (),
) -> CaseResult:
    """Return the result of a case whose checks have been run."""
    verdict = worst(result.verdict for result in checks)
    met = is_as_expected(case, verdict, checks, measured)
    message = "" if met else unmet_expectation(case, checks, measured)
    result = _result(
        case, verdict, source=source, seconds=seconds, message=message, checks=tuple(checks), measured=measured
    )
    result = replace(result, uncovered=uncovered)
    return result if explored is None else _with_exploration(case, result, explored)


def _with_exploration(case: Case, result: CaseResult, explored: Exploration) -> CaseResult:
    """Return the result with what was found at other inputs; a failure there is one of the case.

    So is an error if gradverify itself raised.
    """
    explored = replace(explored, strict=case.exploring is not None and case.exploring.strict)
    if explored:
        return replace(result, explored=explored)
    said = [found_at(found, explored) for found in explored.failing[:1]]
    said += [explored.message] if explored.broken else []
    verdict = Verdict.FAIL if explored.failing else Verdict.ERROR
    return replace(result, explored=explored, verdict=verdict, as_expected=False, message="; ".join(said))


def with_ended_search(result: CaseResult, case: Case, checks: Sequence[CheckResult], found: Exploration) -> CaseResult:
    """Return the result of a case whose search user code ended, with what the checks and the search had found."""
    found = replace(found, strict=case.exploring is not None and case.exploring.strict, message=BROKEN_OFF)
    result = replace(result, checks=tuple(checks), explored=found)
    if not found.failing:
        return result
    return replace(
        result,
        verdict=Verdict.FAIL,
        as_expected=False,
        message=f"{found_at(found.failing[0], found)}; {result.message}",
    )


def could_not_run(
    case: Case, code: str, message: str, *, source: Source | None = None, seconds: float = 0.0
) -> CaseResult:
    """Return the result of a case that could not be run, with a GV9xx code."""
    return _result(case, Verdict.ERROR, source=source, seconds=seconds, message=f"{code}: {message}")


def skipped(case: Case, reason: str) -> CaseResult:
    """Return the result of a case that this machine cannot run."""
    return _result(case, Verdict.SKIP, source=None, seconds=0.0, message=reason)


def drafted(case: Case) -> CaseResult:
    """Return the result of a draft."""
    return replace(skipped(case, f"draft: {case.draft}"), draft=True)


def _result(
    case: Case,
    verdict: Verdict,
    *,
    source: Source | None,
    seconds: float,
    message: str = "",
    checks: tuple[CheckResult, ...] = (),
    measured: Measured | None = None,
) -> CaseResult:
    return CaseResult(
        id=case.id,
        spec=case.spec,
        line=case.line,
        function=shown_target(case.target),
        source=source,
        device=case.device,
        dtype=case.dtype,
        sample=case.sample,
        seed=case.seed,
        verdict=verdict,
        expected=expected_verdict(case),
        as_expected=is_as_expected(case, verdict, checks, measured),
        seconds=seconds,
        message=message,
        checks=checks,
        expected_checks=tuple(case.expect.checks.values()),
        measured=measured and with_claim(measured, case.expect.saved_bytes),
    )
