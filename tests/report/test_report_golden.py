"""The screen, word for word: golden files in `golden/`, without colour.

After a change that is meant, write them anew with `GOLDEN=write python -m pytest tests/report` and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from report_specimens import case, everything, masked, report, second_order, undetermined

from gradverify.report.case_detail import DetailOptions
from gradverify.report.inspect_view import InspectOptions, Picture, inspect_lines
from gradverify.report.lines import Line, cells, plain, to_text
from gradverify.report.screen import ASCII, Detail, Screen
from gradverify.report.terminal import report_lines
from gradverify.result import Report

GOLDEN = Path(__file__).parent / "golden"
HEATMAP = InspectOptions(worst=3, picture=Picture.HEATMAP)

DRAWINGS: dict[str, Callable[[Screen], list[Line]]] = {
    "run": lambda screen: report_lines(everything(), screen, DetailOptions()),
    "run-quiet": lambda screen: report_lines(repeated(), screen, DetailOptions(detail=Detail.QUIET, rows=1)),
    "run-verbose": lambda screen: report_lines(everything(), screen, DetailOptions(detail=Detail.VERBOSE, rows=2)),
    "run-good": lambda screen: report_lines(report(case()), screen, DetailOptions()),
    "inspect": lambda screen: inspect_lines([masked(), undetermined()], screen, InspectOptions()),
    "heatmap": lambda screen: inspect_lines([masked(), second_order()], screen, HEATMAP),
}


def repeated() -> Report:
    """Return everything, as a run with --seed 3 has it."""
    made = everything()
    return replace(made, cases=tuple(replace(case, rerun=("--seed", "3")) for case in made.cases))


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("name", DRAWINGS)
def test_screen(name: str, width: int) -> None:
    compare(f"{name}-{width}.txt", to_text(DRAWINGS[name](Screen(width=width))))


def test_ascii() -> None:
    text = to_text(DRAWINGS["run"](Screen(width=80, glyphs=ASCII)))
    assert text.replace("0 ± 2e-11\n", "").isascii()  # a check's own sentence; the border to the terminal rewrites it
    compare("run-ascii-80.txt", text)


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
@pytest.mark.parametrize("name", DRAWINGS)
def test_only_commands_and_long_words_are_wider_than_the_screen(name: str, width: int) -> None:
    for row in DRAWINGS[name](Screen(width=width)):
        text = plain(row).strip()
        fits = cells(plain(row)) <= width
        assert fits or text.startswith("gradverify ") or "a_rather_long_name" in text or width < 80, text


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("GOLDEN") == "write":
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
