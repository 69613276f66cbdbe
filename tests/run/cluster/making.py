"""Cases for the tests of the cluster, whose functions are in the project in the current folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gradverify.case import Case
from gradverify.report.to_json import to_json
from gradverify.result import Report
from tests.run import making


def case(name: str, file: str = "good.py", **changes: Any) -> Case:
    return making.case(name, Path.cwd() / "ops" / file, **changes)


def numbered(name: str, file: str, count: int, **changes: Any) -> list[Case]:
    return [
        case(name, file, id=f"spec/{name}{number}/cpu-float64", draw_key=f"spec/{name}{number}", **changes)
        for number in range(count)
    ]


def timeless(report: Report) -> str:
    """Return a report as JSON without times."""
    cases = tuple(replace(result, seconds=0.0) for result in report.cases)
    return to_json(replace(report, summary=replace(report.summary, seconds=0.0), cases=cases))
