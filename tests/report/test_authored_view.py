"""What `init` says on a terminal about the specs it wrote."""

from __future__ import annotations

import pytest

from gradverify.report.authored_view import AuthoredRow, State, authored_table, authored_total, inputs_in_brief
from gradverify.report.lines import cells, plain
from gradverify.report.screen import Screen

LONG = "could not make slopes: forward reads its attributes negative, positive; name a `factory` that makes it"
ROWS = [
    AuthoredRow(function="ops.py:Gelu", file="specs/ops/Gelu.yaml", state=State.WRITTEN, about="x [3, 4]"),
    AuthoredRow(function="ops.py:gelu", file="specs/ops/gelu-2.yaml", state=State.EXISTS, about="not replaced"),
    AuthoredRow(function="p.leaky:Leaky", file="specs/p/leaky/Leaky.yaml", state=State.DRAFT, about=LONG),
    AuthoredRow(
        function="p.c:torch.ops.p.soft_plus", file="specs/p/c/soft_plus.yaml", state=State.WRITTEN, about="x []"
    ),
]


def shown(*rows: AuthoredRow, width: int = 80) -> list[str]:
    return [plain(each) for each in authored_table(rows, Screen(width=width))]


def test_functions_stand_below_their_module() -> None:
    assert shown(*ROWS) == [
        "ops.py  specs/ops/",
        "  written  Gelu                x [3, 4]",
        "  exists   gelu (gelu-2.yaml)  not replaced",
        "p.leaky  specs/p/leaky/",
        "  draft    Leaky               could not make slopes: forward reads its",
        "                               attributes negative, positive; name a `factory`",
        "                               that makes it",
        "p.c  specs/p/c/",
        "  written  soft_plus           x []",
    ]


def test_a_long_name_has_its_inputs_below() -> None:
    name = "ARatherLongNameOfAFunctionInside"
    row = AuthoredRow(function=f"p.q:{name}", file=f"specs/p/q/{name}.yaml", state=State.WRITTEN, about="x [3, 4]")
    assert shown(row) == ["p.q  specs/p/q/", f"  written  {name}", "           x [3, 4]"]


@pytest.mark.parametrize("width", [40, 56, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    rows = shown(*ROWS, width=width)
    assert max(map(cells, rows)) <= width
    assert [row for row in rows if "Leaky" in row]


def test_a_function_without_inputs_has_a_line_without_end_blanks() -> None:
    row = AuthoredRow(function="p:F", file="specs/p/F.yaml", state=State.WRITTEN, about="")
    assert shown(row) == ["p  specs/p/", "  written  F"]


def test_nothing_is_no_line() -> None:
    assert shown() == []


def test_total_counts_drafts_and_files_that_were_there() -> None:
    assert authored_total(ROWS) == "4 functions: 3 specs written, 1 of them a draft; 1 had a file already"


def test_inputs_in_brief() -> None:
    inputs = {
        "x": {"shape": ["n", 4]},
        "index": {"shape": [6], "integers": [0, 3]},
        "parts": [{"shape": [2]}, {"shape": [3]}],
        "act": {"factory": "torch.nn:Tanh"},
        "eps": 1e-6,
        "flag": True,
        "none": None,
    }
    assert inputs_in_brief(inputs) == (
        "x [n, 4], index [6] integers, parts ([2], [3]), act Tanh, eps 1e-06, flag true, none null"
    )
