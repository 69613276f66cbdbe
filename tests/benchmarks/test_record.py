"""What a benchmark writes with --json is read back as it was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.record import Row, Standing, Total, judged_row, read_run, run_of, standing_of_right, write_run
from gradverify.result import CheckResult, Finding, Verdict

WRONG = CheckResult(
    check="gradcheck",
    verdict=Verdict.FAIL,
    message="2 of 4 entries differ",
    mismatched=2,
    kinks=1,
    findings=tuple(
        Finding(code=code, verdict=Verdict.FAIL, message=f"{code} here\nand why", cause=cause)
        for code, cause in (("GV103", None), ("GV101", "transposed"), ("GV101", "detached"))
    ),
)


def test_a_row_has_each_code_once_and_every_cause() -> None:
    assert judged_row("sin: one × 0", WRONG, Standing.RIGHT) == Row(
        key="sin: one × 0",
        standing=Standing.RIGHT,
        verdict="fail",
        codes=("GV101", "GV103"),
        cause="detached, transposed",
        mismatched=2,
        kinks=1,
        note="GV103 here",
    )


@pytest.mark.parametrize(
    ("verdict", "standing"),
    [
        (Verdict.PASS, Standing.RIGHT),
        (Verdict.SKIP, Standing.RIGHT),
        (Verdict.FAIL, Standing.FALSE_ALARM),
        (Verdict.INCONCLUSIVE, Standing.INCONCLUSIVE),
        (Verdict.ERROR, Standing.ERROR),
    ],
)
def test_a_right_function_that_fails_is_a_false_alarm(verdict: Verdict, standing: Standing) -> None:
    assert standing_of_right(verdict) is standing


def test_a_run_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    row = replace(judged_row("exp", WRONG, Standing.RIGHT), cost=0.5, against="gradcheck", forward=3, backward=1)
    written = run_of("causes", {"seeds": 2}, [row], [Total(name="seconds", value=1.5)])
    write_run(tmp_path / "run.json", written)
    assert read_run(tmp_path / "run.json") == written
    assert written.totals[:2] == (Total(name="rows", value=1), Total(name="right", value=1))


def test_rows_of_one_key_are_numbered() -> None:
    row = Row(key="exp", standing=Standing.RIGHT, verdict="pass")
    assert [each.key for each in run_of("causes", {}, [row, row]).rows] == ["exp", "exp #2"]
