"""What counts as a constant and as a statement that writes a verdict, and that the real counts are not empty."""

from __future__ import annotations

import ast

import pytest
import torch

from benchmarks.structure import all_counts, files_entered, numeric_constants, verdict_writers


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("_A = 1", ["_A"]),
        ("_A, _B = 2.0**-4, 3", ["_A", "_B"]),
        ("_A: int = 5", ["_A"]),
        ("_A = 4\n_B = 2 * _A\n_C = len(x)", ["_A", "_B"]),
        ("_A = tuple(2.0**-k for k in range(3, 13))", ["_A"]),
        ("_A = {torch.float64: 1e-7}", ["_A"]),
        ("_A = True\n_B = 'text'\n_C = x[1]", []),
        ("def f():\n    inside = 3", []),
    ],
)
def test_a_constant_is_a_module_level_name_for_numbers(text: str, names: list[str]) -> None:
    assert numeric_constants(ast.parse(text)) == names


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("code[mask] = Code.KINK", 1),
        ("return replace(judged, code=judged.code.masked_fill(mask, Code.MATCH).masked_fill(more, Code.JUMP))", 1),
        ("mask = judged.code == Code.MISMATCH", 0),
        ("mask = torch.isin(code, torch.tensor((Code.KINK, Code.JUMP)))", 0),
        ("code = code.masked_fill(code == Code.MATCH, Code.UNDETERMINED)", 1),
        ("if counts[Code.MISMATCH]:\n        code[mask] = Code.MATCH", 1),
        ("return {Code.MATCH: entries}", 0),
        ("return Judged(code=code, bar=bar)", 1),
        ("return decide(judged, [(mask, Reason.JUMP)])", 0),
    ],
)
def test_a_writer_is_a_statement_that_gives_a_verdict(statement: str, count: int) -> None:
    assert len(verdict_writers(ast.parse(f"def judge(code, mask):\n    {statement}"))) == count


def test_tables_of_codes_at_module_level_write_no_verdict() -> None:
    assert verdict_writers(ast.parse("ACCEPTED = frozenset({Code.MATCH, Code.KINK})")) == []


def test_files_entered_are_those_of_core() -> None:
    names = files_entered(torch.sin, 10)
    assert any(name.endswith("jacobians.py") for name in names)
    assert all("core" in name for name in names)


@pytest.mark.slow
def test_everything_is_counted() -> None:
    assert all(count.value > 0 for count in all_counts())
