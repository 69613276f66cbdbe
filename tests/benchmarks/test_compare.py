"""Two runs of one benchmark: what changed, what is worse, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import compare
from benchmarks.record import Row, Run, Setting, Standing, Total, run_of, write_run

RIGHT = Row(key="sin", standing=Standing.RIGHT, verdict="pass")
CAUGHT = Row(key="sin: one × 0", standing=Standing.RIGHT, verdict="fail", codes=("GV101",), mismatched=1)
NAMED = replace(CAUGHT, key="exp: doubled", cause="constant-factor")
TIMED = replace(RIGHT, key="sin, 1000 elements", cost=0.010, against="gradcheck", forward=7)

Compare = Callable[[Run, Run], tuple[int, str]]


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    def run(before: Run, after: Run) -> tuple[int, str]:
        files = [tmp_path / "before.json", tmp_path / "after.json"]
        for file, each in zip(files, (before, after), strict=True):
            write_run(file, each)
        monkeypatch.setattr("sys.argv", ["compare", *map(str, files)])
        with pytest.raises(SystemExit) as ended:
            compare.main()
        found = capsys.readouterr()
        return int(ended.value.code or 0), found.out + found.err

    return run


def a_run(*rows: Row) -> Run:
    return run_of("accuracy", {"seed": 0}, rows)


def test_equal_runs_have_no_changes_and_exit_with_0(compared: Compare) -> None:
    code, text = compared(a_run(RIGHT, CAUGHT, NAMED, TIMED), a_run(RIGHT, CAUGHT, NAMED, TIMED))
    assert code == 0
    assert text.endswith("0 worse, 0 better, 0 otherwise changed\n")
    assert "NOT COMPARABLE" not in text


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            CAUGHT,
            replace(CAUGHT, standing=Standing.MISSED, verdict="pass", codes=(), mismatched=0, note="6 entries agree"),
            "new miss: 1\n  sin: one × 0: fail (right), GV101, 1 mismatched -> pass (missed): 6 entries agree\n",
        ),
        (
            RIGHT,
            replace(RIGHT, standing=Standing.FALSE_ALARM, verdict="fail", codes=("GV101",)),
            "new false alarm: 1\n  sin: pass (right) -> fail (false alarm), GV101\n",
        ),
        (
            RIGHT,
            replace(RIGHT, standing=Standing.ERROR, verdict="error"),
            "new error: 1\n  sin: pass (right) -> error (error)\n",
        ),
        (
            RIGHT,
            replace(RIGHT, standing=Standing.INCONCLUSIVE, verdict="inconclusive", codes=("GV102",), undetermined=2),
            "new inconclusive: 1\n"
            "  sin: pass (right) -> inconclusive (inconclusive), GV102, 2 undetermined\n",
        ),
        (
            NAMED,
            replace(NAMED, standing=Standing.WRONG_CAUSE, cause=None),
            "lost cause: 1\n  exp: doubled: fail (right), GV101, constant-factor, 1 mismatched"
            " -> fail (wrong cause), GV101, 1 mismatched\n",
        ),
        (
            replace(NAMED, standing=Standing.WRONG_CAUSE),
            replace(NAMED, standing=Standing.WRONG_CAUSE, cause=None),
            "lost cause: 1\n",
        ),
        (CAUGHT, replace(CAUGHT, standing=Standing.BELOW_LIMIT, verdict="pass"), "no longer found: 1\n"),
        (
            TIMED,
            replace(TIMED, cost=0.0112),
            "slower: 1\n  sin, 1000 elements: 0.01 -> 0.0112 of gradcheck\n",
        ),
    ],
)  # fmt: skip
def test_a_change_for_the_worse_is_printed_and_exits_with_1(
    compared: Compare, before: Row, after: Row, line: str
) -> None:
    code, text = compared(a_run(before), a_run(after))
    assert code == 1
    assert text.startswith(line)
    assert text.endswith("1 worse, 0 better, 0 otherwise changed\n")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (replace(RIGHT, standing=Standing.INCONCLUSIVE, verdict="inconclusive"), RIGHT, "better: 1\n"),
        (
            replace(RIGHT, standing=Standing.FALSE_ALARM, verdict="fail"),
            replace(RIGHT, standing=Standing.INCONCLUSIVE, verdict="inconclusive"),
            "better: 1\n",
        ),
        (replace(NAMED, standing=Standing.WRONG_CAUSE, cause=None), NAMED, "better: 1\n"),
        (NAMED, replace(NAMED, cause="transposed"), "otherwise changed: 1\n"),
        (RIGHT, replace(RIGHT, codes=("GV109",)), "otherwise changed: 1\n"),
        (RIGHT, replace(RIGHT, kinks=3), "otherwise changed: 1\n  sin: pass (right) -> pass (right), 3 kinks\n"),
        (TIMED, replace(TIMED, forward=8), "otherwise changed: 1\n"),
    ],
)
def test_a_change_that_is_no_worse_is_printed_and_exits_with_0(
    compared: Compare, before: Row, after: Row, line: str
) -> None:
    code, text = compared(a_run(before), a_run(after))
    assert code == 0
    assert text.startswith(line)


@pytest.mark.parametrize(
    "after", [replace(TIMED, cost=0.0109), replace(TIMED, cost=0.002), replace(TIMED, cost=9.0, against="a forward")]
)
def test_a_line_within_ten_percent_or_faster_or_measured_otherwise_is_not_slower(compared: Compare, after: Row) -> None:
    code, text = compared(a_run(TIMED), a_run(after))
    assert code == 0
    assert "slower" not in text


def test_a_note_that_differs_is_no_change(compared: Compare) -> None:
    assert compared(a_run(RIGHT), a_run(replace(RIGHT, note="another wording")))[1].endswith("0 otherwise changed\n")


def test_the_worst_comes_first(compared: Compare) -> None:
    code, text = compared(
        a_run(replace(RIGHT, key="better", standing=Standing.INCONCLUSIVE), RIGHT, CAUGHT),
        a_run(
            replace(RIGHT, key="better"),
            replace(RIGHT, standing=Standing.INCONCLUSIVE),
            replace(CAUGHT, standing=Standing.MISSED),
        ),
    )
    assert code == 1
    assert text.index("new miss") < text.index("new inconclusive") < text.index("better")


def test_totals_stand_side_by_side(compared: Compare) -> None:
    before, after = a_run(RIGHT), a_run(RIGHT)
    _, text = compared(
        replace(before, totals=(Total(name="error bars", value=10),)),
        replace(after, totals=(Total(name="error bars", value=12),)),
    )
    assert "total       before  after  change\nerror bars      10     12      +2\n" in text


def test_another_version_or_option_is_said_to_be_not_comparable(compared: Compare) -> None:
    before = a_run(RIGHT)
    after = replace(
        before,
        options=(Setting(name="seed", value="1"),),
        versions=(Setting(name="torch", value="2.4.0"), *before.versions[3:]),
    )
    before = replace(before, versions=(Setting(name="torch", value="2.13.0"), *before.versions[3:]))
    code, text = compared(before, after)
    assert code == 0
    assert text.startswith(
        "NOT COMPARABLE: torch is 2.13.0 before and 2.4.0 after\nNOT COMPARABLE: option seed is 0 before and 1 after\n"
    )


def test_rows_of_one_run_only_are_said_and_the_others_compared(compared: Compare) -> None:
    gone, new = replace(RIGHT, key="cos"), replace(RIGHT, key="tan")
    code, text = compared(a_run(gone, CAUGHT), a_run(new, replace(CAUGHT, standing=Standing.MISSED)))
    assert code == 1
    assert text.startswith(
        "NOT COMPARABLE: rows only before: 1: cos\nNOT COMPARABLE: rows only after: 1: tan\nnew miss: 1\n"
    )


def test_a_new_row_that_is_a_miss_is_worse(compared: Compare) -> None:
    code, text = compared(a_run(RIGHT), a_run(RIGHT, replace(CAUGHT, standing=Standing.MISSED)))
    assert code == 1
    assert "  sin: one × 0: no row -> fail (missed), GV101, 1 mismatched\n" in text


def test_runs_of_two_benchmarks_are_refused(compared: Compare, tmp_path: Path) -> None:
    code, text = compared(a_run(RIGHT), run_of("causes", {}, [RIGHT]))
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    assert code == 2
    assert text == f"NOT COMPARABLE: {before} is a run of accuracy, {after} of causes\n"


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"benchmark": "accuracy", "rows": 3})])
def test_a_file_of_another_kind_is_refused_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    file = tmp_path / "other.json"
    file.write_text(content, encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["compare", str(file), str(tmp_path / "missing.json")])
    with pytest.raises(SystemExit) as ended:
        compare.main()
    assert ended.value.code == 2
    expected = f"NOT COMPARABLE: {file} is not a file that a benchmark wrote with --json: "
    assert capsys.readouterr().err.startswith(expected)
