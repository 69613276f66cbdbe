"""Each mistake of the benchmark is hidden at the usual inputs, shows at another one, and its twin is right at both."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.hidden_subject import Hidden
from benchmarks.hidden_subjects import SUBJECTS
from benchmarks.later_subjects import LATER
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import Verdict

pytestmark = pytest.mark.slow  # 70 pairs, each judged at two inputs
ALL = (*SUBJECTS, *LATER)
SETTINGS = Settings(torch_gradcheck=TorchGradcheck.NEVER)
EACH = pytest.mark.parametrize("subject", ALL, ids=lambda subject: subject.name)


def judged(subject: Hidden, function: type[torch.autograd.Function], inputs: tuple[Any, ...]) -> set[Verdict]:
    """Return the verdicts of the checks that are about the mistake. No cause is looked for."""
    checks = ("gradcheck", "gradgradcheck") if subject.change == "second order" else ("gradcheck",)
    names = [f"x{number}" for number in range(len(inputs))]
    problem = bind(function.apply, inputs, names=names)
    return {run_check(check, problem, SETTINGS).verdict for check in checks}


@EACH
def test_mistake_is_hidden_at_the_usual_inputs(subject: Hidden) -> None:
    assert judged(subject, subject.wrong, subject.inputs()) == {Verdict.PASS}
    assert judged(subject, subject.right, subject.inputs()) == {Verdict.PASS}


@EACH
def test_mistake_shows_at_another_input(subject: Hidden) -> None:
    assert Verdict.FAIL in judged(subject, subject.wrong, subject.shows_at())
    assert judged(subject, subject.right, subject.shows_at()) == {Verdict.PASS}


def test_names_are_unique() -> None:
    assert len({subject.name for subject in ALL}) == len(ALL)


@EACH
def test_twins_share_forward(subject: Hidden) -> None:
    assert subject.wrong.forward is subject.right.forward
    assert subject.wrong.backward is not subject.right.backward
