"""The table of elements fits the screen and never cuts a number or an index."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_specimens import case, element, finding, masked, report

from gradverify.report.case_detail import DetailOptions
from gradverify.report.element_table import element_table, named
from gradverify.report.lines import BAD, cells, plain
from gradverify.report.paint import Colour, paint
from gradverify.report.reproduce import reproduce_command
from gradverify.report.screen import ASCII, UNICODE, Screen, glyphs_for
from gradverify.report.terminal import report_lines
from gradverify.result import Element, ElementVerdict

elements = st.builds(
    Element,
    output_index=st.tuples(st.integers(0, 99_999), st.integers(0, 99_999)),
    input_index=st.tuples(st.integers(0, 99_999)),
)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(elements, min_size=1, max_size=4), st.sampled_from([76, 136]))
def test_any_elements_fit(made: list[Element], width: int) -> None:
    rows = [plain(row) for row in element_table(finding(), made, Screen(width=width))]
    text = "\n".join(rows)
    assert max(map(cells, rows)) <= width
    for one in made:
        assert named("", one.output_index) in text
        assert named("", one.input_index) in text


def test_one_row_where_it_fits() -> None:
    rows = [plain(row) for row in element_table(finding(), [element(3)], Screen(width=140))]
    assert rows == [
        "input        value  output  analytic  numeric ± bar  error  allowed  ratio",
        "x[3]   5.512345679  y[3]           1      0 ± 2e-11      1  3.1e-10  3.3e9",
    ]


def test_names_move_into_the_titles_where_that_makes_it_fit() -> None:
    long = finding(of="output", wrt="input_tensor")
    rows = [plain(row) for row in element_table(long, [element(3)], Screen(width=76))]
    assert rows == [
        "input_tensor  value  output  analytic  numeric ± bar  error  allowed  ratio",
        "[3]            5.51  [3]            1      0 ± 2e-11      1    3e-10  3.3e9",
    ]


def test_two_lines_where_one_is_not_enough() -> None:
    long = finding(of="grad z.imag", wrt="cotangent of output")
    rows = [plain(row) for row in element_table(long, [element(3)], Screen(width=76))]
    assert rows == [
        "input                         value  output",
        "  analytic  numeric ± bar  error  allowed  ratio",
        "cotangent of output[3]  5.512345679  grad z.imag[3]",
        "         1      0 ± 2e-11      1  3.1e-10  3.3e9",
    ]


def test_one_value_per_line_where_nothing_else_fits() -> None:
    rows = [plain(row) for row in element_table(finding(), [element(3)], Screen(width=30))]
    assert rows == [
        "- input          x[3]",
        "  value          5.512345679",
        "  output         y[3]",
        "  analytic       1",
        "  numeric ± bar  0 ± 2e-11",
        "  error          1",
        "  allowed        3.1e-10",
        "  ratio          3.3e9",
    ]


def test_a_small_difference_shows_on_a_narrow_screen() -> None:
    close = element(0, analytic=1.00000031, numeric=1.0, error=3.1e-7, allowed=1e-7)
    text = "\n".join(plain(row) for row in element_table(finding(), [close], Screen(width=74)))
    assert "1.00000031" in text
    assert "1.00000000 ± 2e-11" in text


def test_scalars_have_no_brackets() -> None:
    assert (named("x", ()), named("grad x", (1, 2))) == ("x", "grad x[1,2]")


def test_reproduce_command() -> None:
    assert reproduce_command(case("a/b c/cpu", spec="my specs/a.yaml", rerun=("--dtype", "float32"))) == (
        "gradverify run 'my specs/a.yaml' -k 'a/b c/cpu' --dtype float32"
    )
    assert reproduce_command(case("it's", spec="a.yaml")) == "gradverify run a.yaml -k 'it'\"'\"'s'"
    assert reproduce_command(case(spec="")) == ""
    assert reproduce_command(case("-a/b", spec="-a.yaml")) == "gradverify run ./-a.yaml -k '-a/b'"
    required = ("--require-device", "cuda", "--seed", "3", "--require-device", "mps")
    assert reproduce_command(case("a/b/cuda:1", spec="a.yaml", device="cuda:1", rerun=required)) == (
        "gradverify run a.yaml -k 'a/b/cuda:1' --require-device cuda --seed 3"
    )
    drafts = ("--seed", "3", "--no-drafts", "--require-device", "cuda")
    assert reproduce_command(case("a/b/cpu", spec="a.yaml", rerun=drafts)) == (
        "gradverify run a.yaml -k 'a/b/cpu' --seed 3 --no-drafts"
    )


@pytest.mark.parametrize(
    ("encoding", "glyphs"), [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no", ASCII)]
)
def test_signs_of_an_encoding(encoding: str | None, glyphs: object) -> None:
    assert glyphs_for(encoding) is glyphs


def test_colour_changes_no_letter() -> None:
    rows = report_lines(report(masked()), Screen(), DetailOptions())
    bare = "".join(paint(rows, Colour.NONE))
    for colour in (Colour.STANDARD, Colour.EIGHT_BIT, Colour.TRUECOLOR):
        painted = "".join(paint(rows, colour))
        assert "\x1b[" in painted
        stripped = re.sub(r"\x1b\[[0-9;]*m", "", painted)
        assert [row.rstrip() for row in stripped.splitlines()] == bare.splitlines()


def test_only_what_backward_says_of_an_accused_element_is_red() -> None:
    elements = (element(0, analytic=3.0), element(1, analytic=4.0, verdict=ElementVerdict.KINK))
    for width in (140, 20):
        rows = element_table(finding(elements=elements), elements, Screen(width=width))
        assert [part.text.strip() for row in rows for part in row if part.style == BAD] == ["3"]


def test_nothing_to_show() -> None:
    assert element_table(finding(), [], Screen()) == []
