"""Each mistake of the benchmark is hidden at the usual inputs, shows at another one, and its twin is right at both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradverify
from benchmarks.hidden_subject import Hidden
from benchmarks.hidden_subjects import SUBJECTS
from benchmarks.later_subjects import LATER
from gradverify.result import Verdict

pytestmark = pytest.mark.slow  # 70 pairs, each judged at two inputs
ALL = (*SUBJECTS, *LATER)
EACH = pytest.mark.parametrize("subject", ALL, ids=lambda subject: subject.name)


def judged(subject: Hidden, function: type[torch.autograd.Function], inputs: tuple[Any, ...]) -> Verdict:
    second = subject.change == "second order"
    checks = ("gradcheck", "gradgradcheck") if second else ("gradcheck",)
    return gradverify.verify(function, inputs, checks=checks, torch_gradcheck="never").verdict


@EACH
def test_mistake_is_hidden_at_the_usual_inputs(subject: Hidden) -> None:
    assert judged(subject, subject.wrong, subject.inputs()) is Verdict.PASS
    assert judged(subject, subject.right, subject.inputs()) is Verdict.PASS


@EACH
def test_mistake_shows_at_another_input(subject: Hidden) -> None:
    assert judged(subject, subject.wrong, subject.shows_at()) is Verdict.FAIL
    assert judged(subject, subject.right, subject.shows_at()) is Verdict.PASS


def test_names_are_unique() -> None:
    assert len({subject.name for subject in ALL}) == len(ALL)


@EACH
def test_twins_share_forward(subject: Hidden) -> None:
    assert subject.wrong.forward is subject.right.forward
    assert subject.wrong.backward is not subject.right.backward
