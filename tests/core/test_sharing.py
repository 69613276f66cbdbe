"""Rows that share no input are asked for together; of rows that all share one, each is a question of its own."""

from __future__ import annotations

import pytest
import torch

from gradverify.core.excuses import trial
from gradverify.core.excuses.trial import _numbered


def test_rows_with_an_input_in_common_are_asked_one_by_one() -> None:
    reach = torch.tensor([[0, 1], [0, 2], [3, 0], [0, 4]])
    assert sorted(_numbered(reach, 5, 3).tolist()) == [-1, 0, 1, 2]
    assert sorted(_numbered(reach, 5, 9).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("paired", [0, 4096])
def test_rows_that_share_nothing_are_one_question(paired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PAIRED", paired)
    reach = torch.tensor([[0, 1], [2, 9], [3, 4], [9, 5]])  # 9 is nobody
    assert _numbered(reach, 9, 4).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("paired", [0, 4096])
def test_rows_of_one_question_share_no_input(paired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_PAIRED", paired)
    generator = torch.Generator().manual_seed(0)
    reach = torch.randint(40, (60, 3), generator=generator)
    number = _numbered(reach, 40, 64)
    assert bool((number >= 0).all())
    for question in number.unique():
        asked = [set(row) for row in reach[number == question].tolist()]
        assert sum(map(len, asked)) == len(set().union(*asked))
