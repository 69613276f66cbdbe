"""A draft: a case that says itself that it is not finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
from tests.lent import Commands

SPEC = """
function: ops.py:Square
draft: say the shape of x
inputs: {x: {shape: []}}
cases:
  unfinished: {}
  other: {draft: say another}
  finished: {draft: null, inputs: {x: {shape: [3]}}}
"""
OPS = """
import torch

print("loaded")


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]
"""


@pytest.fixture
def folder(commands: Commands) -> Path:
    """Return the folder that `commands` run in, with a module and a spec."""
    (commands.folder / "ops.py").write_text(OPS, encoding="utf-8")
    (commands.folder / "draft.yaml").write_text(SPEC, encoding="utf-8")
    return commands.folder


def test_a_case_may_be_a_draft_or_be_finished(folder: Path) -> None:
    cases = expand(read_paths([folder / "draft.yaml"]).specs)
    assert [case.draft for case in cases] == ["say the shape of x", "say another", ""]


@pytest.mark.parametrize("value", ["true", "''", "3"])
def test_a_draft_says_why(folder: Path, value: str) -> None:
    text = f"function: ops.py:Square\ndraft: {value}\ninputs: {{x: {{shape: [3]}}}}\n"
    (folder / "draft.yaml").write_text(text, encoding="utf-8")
    (error,) = read_paths([folder / "draft.yaml"]).errors
    assert (error.path, error.problem[:13]) == ("draft", "expected text")


@pytest.mark.slow
def test_a_draft_is_skipped_without_loading_its_function(commands: Commands, folder: Path) -> None:
    text = "function: nowhere.module:Missing\ndraft: not here yet\ninputs: {anything: 3}\n"
    (folder / "draft.yaml").write_text(text, encoding="utf-8")
    ran = commands("run", "draft.yaml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "- 1 case skipped: draft: not here yet\n" in ran.stdout
    assert "✓ 1 case as expected: 1 skip (1 draft) in" in ran.stdout


@pytest.mark.slow
def test_with_no_drafts_a_draft_is_not_as_expected(commands: Commands, folder: Path) -> None:
    ran = commands("run", "draft.yaml", "--no-drafts")
    assert ran.returncode == 1
    assert "✗ 2 of 3 cases not as expected: 2 skip (2 drafts); as expected: 1 pass in" in ran.stdout
    assert "✗ SKIP   draft/other/cpu-float64       draft: say another" in ran.stdout


@pytest.mark.slow
def test_list_shows_drafts(commands: Commands, folder: Path) -> None:
    rows = [row.split("\t") for row in commands("list", "draft.yaml").stdout.splitlines()]
    assert [row[2] for row in rows] == ["draft", "draft", "gradcheck,gradgradcheck,contract"]
