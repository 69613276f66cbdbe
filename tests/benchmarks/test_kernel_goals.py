"""The goals of the benchmark `kernels`."""

from __future__ import annotations

from benchmarks.kernel_goals import goals, goals_table
from benchmarks.record import Row, Standing


def _row(standing: Standing, forward: int = 6, backward: int = 5) -> Row:
    return Row(key="a", standing=standing, verdict="pass", forward=forward, backward=backward)


def _not_met(right: Row, to_find: Row) -> list[str]:
    return [goal.name for goal in goals([right], [to_find]) if not goal.met]


def test_right_kernels_that_pass_and_mistakes_that_fail_meet_every_goal() -> None:
    assert _not_met(_row(Standing.RIGHT), _row(Standing.RIGHT)) == []


def test_each_goal_is_missed_for_its_own_reason() -> None:
    good = _row(Standing.RIGHT)
    assert _not_met(_row(Standing.FALSE_ALARM), good) == ["false alarms"]
    assert _not_met(_row(Standing.INCONCLUSIVE), good) == ["right kernels without a verdict"]
    assert _not_met(good, _row(Standing.MISSED)) == ["mistakes not found"]
    assert _not_met(good, _row(Standing.INCONCLUSIVE)) == ["mistakes not found"]
    assert _not_met(_row(Standing.RIGHT, forward=11), good) == ["most forwards"]
    assert _not_met(_row(Standing.RIGHT, backward=11), good) == ["most backwards"]


def test_the_table_says_which_goal_is_not_met() -> None:
    lines = goals_table(list(goals([_row(Standing.RIGHT)], [_row(Standing.MISSED)]))).splitlines()
    [missed] = [line for line in lines if "not met" in line]
    assert "mistakes not found" in missed
