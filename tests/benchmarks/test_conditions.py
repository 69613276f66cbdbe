"""The watch over conditions finds what decides nothing, and changes no result."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.conditions import Finder, Watcher

SOURCE = """
import torch

def chosen(x: "int | float") -> torch.Tensor:
    mask = (x > 0) & (x > -1)
    mask &= x > -2
    kept = torch.empty_like(x)
    torch.maximum(x, x - 1, out=kept)
    assert torch.equal(kept, x)
    if mask.all():
        return torch.maximum(x, -x)
    return x
"""


def test_operands_and_conditions_that_decide_nothing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_room.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    watcher = Watcher()
    monkeypatch.setattr(sys, "meta_path", [Finder("watched_room", watcher), *sys.meta_path])
    module = importlib.import_module("watched_room")
    for values in ([1.0, -0.5], [1.0, 2.0]):
        assert module.chosen(torch.tensor(values)).tolist() == values
    assert list(watcher.idle()) == [
        "watched_room:0005:11: (x > 0) & (x > -1): its right operand never mattered, 2 times",
        "watched_room:0006:4: mask &= x > -2: its right operand never mattered, 2 times",
        "watched_room:0011:15: torch.maximum(x, -x): its right operand never mattered, 1 times",
    ]
