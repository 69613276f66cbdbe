"""How reports show elements that were held against a reference."""

from __future__ import annotations

from dataclasses import replace

from gradverify.report.ci.markdown import to_markdown
from gradverify.report.element_table import element_table
from gradverify.report.heatmap import heatmap
from gradverify.report.lines import plain
from gradverify.report.page.picture import picture_of
from gradverify.report.page.rows import element_rows, row_names
from gradverify.report.screen import Screen
from gradverify.report.to_json import from_json, to_json
from gradverify.result import Against, Element, ElementVerdict, Finding, Verdict
from tests.report.report_specimens import everything


def element(row: int, column: int, *, of_output: bool = False) -> Element:
    return Element(
        output_index=(row, column) if of_output else (),
        input_index=() if of_output else (row, column),
        value=0.25,
        analytic=0.0,
        numeric=1.5 + row,
        error_bar=0.0,
        error=1.5 + row,
        allowed=0.01,
        verdict=ElementVerdict.MISMATCH,
        ulps=192.0,
    )


GRADIENT = Finding(
    code="GV702",
    verdict=Verdict.FAIL,
    wrt="x",
    message="2 of 32 entries of the gradient by x differ",
    total=2,
    elements=(element(3, 7), element(1, 2)),
    against=Against.REFERENCE,
)
OUTPUT = replace(GRADIENT, code="GV701", of="y", wrt=None, elements=(element(3, 7, of_output=True),), total=1)


def test_the_table_of_a_gradient() -> None:
    assert [plain(row) for row in element_table(GRADIENT, GRADIENT.elements, Screen())] == [
        "input   value  kernel  reference  error  allowed  ratio  ulps",
        "x[3,7]   0.25       0        4.5    4.5     0.01    450   190",
        "x[1,2]   0.25       0        2.5    2.5     0.01    250   190",
    ]


def test_the_table_of_an_output_has_no_input() -> None:
    assert [plain(row) for row in element_table(OUTPUT, OUTPUT.elements, Screen())] == [
        "output  kernel  reference  error  allowed  ratio  ulps",
        "y[3,7]       0        4.5    4.5     0.01    450   190",
    ]


def test_the_page_has_the_same_columns() -> None:
    assert row_names(OUTPUT) == ("output", "kernel", "reference", "difference", "allowed", "ratio", "ulps", "verdict")
    ((*texts, verdict),) = element_rows(OUTPUT, OUTPUT.elements)
    assert ([text.strip() for text in texts], verdict) == (
        ["y[3,7]", "0", "4.5", "4.5", "0.01", "450", "190"],
        "mismatch",
    )


def test_pictures_lay_a_tensor_out_by_its_last_dimension() -> None:
    found = picture_of(GRADIENT, GRADIENT.elements)
    assert found is not None
    assert (found.rows, found.columns) == (("x[1]", "x[2]", "x[3]"), tuple(f"[{place}]" for place in range(2, 8)))
    assert (found.names, found.is_jacobian) == (("kernel", "reference"), False)
    drawn = [plain(row) for row in heatmap(GRADIENT, Screen())]
    assert drawn[0].split() == ["kernel", "reference", "error"]
    assert "rows x[1] to x[3], columns [2] to [7]; a cell covers one entry" in drawn


def test_tables_and_pictures_name_the_devices_that_are_compared() -> None:
    found = replace(GRADIENT, code="GV707", against=Against.CPU)
    title = "input   value  device  CPU  error  allowed  ratio  ulps"
    assert plain(element_table(found, found.elements, Screen())[0]) == title
    assert row_names(found)[2:4] == ("device", "CPU")
    drawn = picture_of(found, found.elements)
    assert drawn is not None
    assert drawn.names == ("device", "CPU")


def test_json_and_markdown_keep_what_elements_are_held_against() -> None:
    report = everything()
    case = report.cases[3]
    check = replace(case.checks[0], findings=(GRADIENT,))
    changed = replace(report, cases=(replace(case, checks=(check,)),))
    (finding,) = from_json(to_json(changed)).cases[0].checks[0].findings
    assert finding == GRADIENT
    assert "| input | value | kernel | reference | error | allowed | ratio | ulps |" in to_markdown(changed)
