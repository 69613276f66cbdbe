"""Verdicts on right functions: false alarms and inconclusive results, and the time beside torch's gradcheck."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.record import Row, Standing, judged_row, standing_of_right
from benchmarks.subject import problem_of, result_of
from benchmarks.trials import Mode, seconds, torch_verdict
from gradverify.result import CheckResult, Verdict
from tests.zoo.specimen import Specimen


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """The verdicts on one right function."""

    subject: str
    order: int
    row: Row  # right if the verdict is the one the zoo expects
    verdict: Verdict
    slow: Verdict  # of torch's gradcheck; SKIP if it was not run
    fast: Verdict
    limit: float | None  # detection limit, relative
    ours_seconds: float
    slow_seconds: float


def judge_order_1(specimen: Specimen, seed: int) -> Right:
    """Return the verdicts of our gradcheck and of torch's slow and fast ones on the specimen."""
    problem = problem_of(specimen, seed)
    result = result_of("gradcheck", problem, seed)
    return Right(
        subject=specimen.name,
        order=1,
        row=row_at_order_1(specimen, result),
        verdict=result.verdict,
        slow=torch_verdict(problem, Mode.SLOW),
        fast=torch_verdict(problem, Mode.FAST),
        limit=result.detection_limit,
        ours_seconds=seconds(lambda: result_of("gradcheck", problem, seed)),
        slow_seconds=seconds(lambda: torch_verdict(problem, Mode.SLOW)),
    )


def judge_order_2(specimen: Specimen, seed: int) -> Right:
    """Return the verdict of our gradgradcheck on the specimen."""
    begin = time.perf_counter()
    result = result_of("gradgradcheck", problem_of(specimen, seed), seed)
    return Right(
        subject=specimen.name,
        order=2,
        row=row_at_order_2(specimen, result),
        verdict=result.verdict,
        slow=Verdict.SKIP,
        fast=Verdict.SKIP,
        limit=result.detection_limit,
        ours_seconds=time.perf_counter() - begin,
        slow_seconds=0.0,
    )


def row_at_order_1(specimen: Specimen, result: CheckResult) -> Row:
    """Return the row of gradcheck's result; its standing is RIGHT if the zoo expects the verdict."""
    return _row(specimen.name, result, expected=specimen.allows(result.verdict))


def row_at_order_2(specimen: Specimen, result: CheckResult) -> Row:
    """Return the row of gradgradcheck's result; its standing is RIGHT if the zoo expects the verdict."""
    return _row(f"{specimen.name}, order 2", result, expected=_expected_at_order_2(specimen, result))


def passing_modes(right: Right) -> frozenset[Mode]:
    """Return the modes of torch's gradcheck that pass the right function."""
    verdicts = {Mode.SLOW: right.slow, Mode.FAST: right.fast}
    return frozenset(mode for mode, verdict in verdicts.items() if verdict is Verdict.PASS)


def _expected_at_order_2(specimen: Specimen, result: CheckResult) -> bool:
    if "wrong at order 2" in specimen.tags:
        return result.verdict is Verdict.FAIL
    if result.verdict is Verdict.ERROR:
        return "not implemented" in result.message  # some of torch's operations have no second derivative
    if result.verdict is Verdict.INCONCLUSIVE:
        return "open at order 2" in specimen.tags or bool(specimen.inconclusive)
    return result.verdict in (Verdict.PASS, Verdict.SKIP)


def _row(key: str, result: CheckResult, *, expected: bool) -> Row:
    if expected:
        return judged_row(key, result, Standing.RIGHT)
    standing = standing_of_right(result.verdict)
    # The function passes although the zoo expects another verdict.
    return judged_row(key, result, Standing.MISSED if standing is Standing.RIGHT else standing)
