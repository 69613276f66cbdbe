"""Text of others cannot steer the terminal, and is folded without breaking a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradverify.report.lines import cells
from gradverify.report.safe import fold, safe, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ✓ π 测试 [red]x[/red]", "plain ✓ π 测试 [red]x[/red]"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\rb\nc\td", r"a\rb\nc\td"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800", r"\ud800"),
        ("\x9b31m", r"\x9b31m"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert safe(text) == shown


@given(st.text())
def test_safe_text_is_printable(text: str) -> None:
    assert safe(text).isprintable()


@given(st.text(alphabet="ab1.± \n测", max_size=60), st.integers(1, 30))
def test_folding_keeps_every_word_and_the_width(text: str, width: int) -> None:
    rows = fold(text, width)
    assert " ".join(" ".join(rows).split()) == " ".join(text.split())
    for row in rows:
        assert cells(row) <= width or " " not in row.strip() or "±" in row


def test_a_number_keeps_its_error_bar() -> None:
    assert fold("the value is 0.5 ± 2e-11 here", 20) == ["the value is", "0.5 ± 2e-11 here"]


def test_a_number_keeps_its_unit() -> None:
    assert fold("peak 120 B, plain torch 138 B", 27) == ["peak 120 B, plain torch", "138 B"]
    assert fold("the matrix B, and A", 12) == ["the matrix", "B, and A"]


def test_a_traceback_keeps_its_shape() -> None:
    assert fold('Traceback:\n  File "a.py"\n    raise\x1b', 40) == ["Traceback:", '  File "a.py"', r"    raise\x1b"]


def test_shortened_at_a_word() -> None:
    assert shortened("no device cuda here", 14, "…") == "no device …"
    assert shortened("no device", 9, "…") == "no device"
    assert shortened("nodevice", 4, "…") == "…"
