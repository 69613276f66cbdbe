"""`gradverify.explore`: what it returns, and how that prints."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import gradverify
from gradverify.result import Exploration
from tests.core.support import double


class Times(torch.autograd.Function):
    """Backward forgets the factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        return x * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


def test_a_warning_of_the_function_is_given_once() -> None:
    def warned(x: Tensor) -> Tensor:
        warnings.warn("rounds", stacklevel=1)
        return x.sin()

    with pytest.warns(UserWarning, match="rounds") as caught:
        found = gradverify.explore(warned, (double([0.3, -1.2]),), budget=6)
    assert found.tries > 1
    assert len(caught) == 1


@pytest.mark.slow
def test_a_mistake_at_another_argument_is_found_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = gradverify.explore(Times, (double([0.5, -1.0]), 1.0), budget=12)
    assert isinstance(found, Exploration)
    assert not found and repr(found) == "<Exploration: 12 tries, 2 failures>"
    rows = str(found).splitlines()
    assert rows[0].startswith("✗ found at try 1 of 12: factor: ")
    assert rows[-1] == "explore: ✗ fail  12 tries with other inputs, 2 failures"
    assert any(row.startswith("    GV101  ") for row in rows)
    assert max(map(len, rows)) <= 100


def test_a_notebook_shows_the_table_of_a_failure() -> None:
    found = gradverify.explore(Times, (double([0.5, -1.0]), 1.0), budget=12)
    html = found._repr_html_()  # type: ignore[attr-defined]
    assert "found at try 1 of 12: factor: " in html
    assert "<svg" in html and "<table>" in html and "<script" not in html


def test_a_right_function_prints_its_tries() -> None:
    found = gradverify.explore(torch.sin, (double([0.5, -1.0]),), budget=8)
    assert found
    assert str(found).startswith("explore: ✓ pass  8 tries with other inputs")


@pytest.mark.slow
def test_a_result_can_be_pickled_and_compared() -> None:
    first, second = (gradverify.explore(Times, (double([0.5, -1.0]), 1.0), budget=5) for _ in range(2))
    assert pickle.loads(pickle.dumps(first)) == first == second
