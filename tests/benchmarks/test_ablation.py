"""Switching a mechanism off shows in the rows of the zoo, and leaves nothing behind."""

from __future__ import annotations

import warnings

import pytest
import torch

from benchmarks import ablation
from benchmarks.ablation import Effect, baseline, effect_of
from benchmarks.compare import Kind
from benchmarks.mechanisms import MECHANISMS, Group, calls_noted, switched_off
from benchmarks.zoo import zoo_cases
from gradverify.core.decide import columns
from gradverify.result import Verdict
from tests.core.support import double, gradcheck

pytestmark = pytest.mark.slow  # the zoo once for each mechanism

EXCUSES = [mechanism for mechanism in MECHANISMS if mechanism.group is Group.EXCUSE]
PROPAGATED = next(mechanism for mechanism in MECHANISMS if mechanism.name == "propagated nan")
DECIDED = {  # mechanism: a row of the zoo that is worse without it
    "backward_rounding": "loss of a sure prediction, logit 30",
    "low precision": "bfloat16 branch that rounding decides",
    "rounding of backward": "backward that cancels",
    "stairs": "rounded to fiftieths",
    "constant stairs": "rounded to fiftieths",
    "oblique": "sort of six equals",
    "slight kink": "exponential with a slight kink at the point",
    "differences of samples": "gram-schmidt, order 2",
    "rounding jump": "gelu far out",
    "rounding on the way": "constant by cancellation",
    "unresolved slope": "waves shorter than any step",
    "lasting stairs": "wrong: sigmoid in float32 by a copy left out of the gradient",
    "cancellation": "zeros, claimed as 1e-17 of x",
    "drift": "entropy of zero, guarded by 1e-38",
    "finer steps": "ripple far from zero",
    "constant between jumps": "network of 512 relus, order 2",
    "stair": "log(1 - sigmoid) far up",
    "float64 forward": "bfloat16 sigmoid, saturated, order 2",
    "rounding inside": "wrong: off by 1e-6 where the output is off by an ulp",
    "scatter of the ladder": "huber's joint, 1e-12 from its kink, order 2",
    "propagated nan": "sqrt of zero beside others",
    "rows at a tie": "wrong: quantile of equals, halved",
}

CHANGED = {  # mechanism: a row of the zoo that has other counts or evaluations without it
    "pooled": "woodbury",
    "rounding of outputs": "cos at zero",
    "rounding of inputs": "hardswish, 1e-12 from its kink",
    "elementwise": "sin",
    "smaller steps": "float32 tanh by hand, 32 entries",
    "first look": "fixed point solved to 1e-10, order 2",
    "single steps": "100 log sigmoids, up to 60, order 2",
}
QUICK = ["all matching"]  # saves time alone: without it, sin of a million entries takes 2.7 times as long


def test_a_mechanism_that_is_off_excuses_nothing_and_is_back_afterwards() -> None:
    oblique = next(mechanism for mechanism in MECHANISMS if mechanism.name == "oblique")
    before = columns.EXCUSES
    with switched_off(oblique):
        assert before != columns.EXCUSES
        assert gradcheck(torch.sqrt, double([0.0, 1.0])).verdict is Verdict.INCONCLUSIVE
    assert before == columns.EXCUSES
    with switched_off(PROPAGATED):
        assert gradcheck(torch.sqrt, double([0.0, 1.0])).verdict is Verdict.FAIL
    assert gradcheck(torch.sqrt, double([0.0, 1.0])).verdict is Verdict.INCONCLUSIVE


def test_only_mechanisms_that_are_called_are_noted() -> None:
    asked: set[str] = set()
    with calls_noted(MECHANISMS, asked):
        assert gradcheck(torch.sin, double([0.5, 1.0])).verdict is Verdict.PASS
    assert not asked & {mechanism.name for mechanism in EXCUSES}
    assert "elementwise" in asked


def test_without_any_one_mechanism_a_wrong_gradient_still_fails() -> None:
    wrong = [case for case in zoo_cases("square without its 2", 0) if case.key.startswith("wrong")]
    found = baseline(wrong, MECHANISMS)
    assert [row.verdict for row in found.rows] == ["fail"]
    assert [each.name for each in MECHANISMS if effect_of(each, found).worse] == []


def test_a_row_that_needs_an_excuse_is_worse_without_it() -> None:
    found = baseline(list(zoo_cases("sqrt of zero beside others", 0)), MECHANISMS)
    effect = effect_of(PROPAGATED, found)
    assert (effect.worse > 0, effect.better) == (True, 0)
    assert effect.changes[0].text.startswith("inconclusive (right), GV104, ")
    assert " -> fail (false alarm)" in effect.changes[0].text


def test_an_unknown_mechanism_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["ablation", "digits"])
    with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
        ablation.main()
    assert ended.value.code == 2
    assert "no mechanism or group is called digits; there are backward_rounding, oblique, " in capsys.readouterr().err


def test_every_mechanism_is_known_to_decide_or_to_change_a_row() -> None:
    assert sorted([*DECIDED, *CHANGED, *QUICK]) == sorted(each.name for each in MECHANISMS)


@pytest.mark.parametrize("name", DECIDED)
def test_each_mechanism_decides_a_row_of_the_zoo(name: str) -> None:
    effect = _effect(name, DECIDED[name])
    assert effect.worse == 1, effect.changes


@pytest.mark.parametrize("name", CHANGED)
def test_each_other_mechanism_changes_a_row_of_the_zoo(name: str) -> None:
    effect = _effect(name, CHANGED[name])
    assert [change.kind for change in effect.changes] == [Kind.OTHER]


def _effect(name: str, key: str) -> Effect:
    cases = [case for case in zoo_cases(key.removesuffix(", order 2").removeprefix("wrong: "), 0) if case.key == key]
    mechanism = next(each for each in MECHANISMS if each.name == name)
    return effect_of(mechanism, baseline(cases, MECHANISMS))
