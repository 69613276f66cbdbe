"""The Python interface: the same numbers as a spec, and no way to pass by mistake."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gradverify
from gradverify.checks.registry import CHECKS
from gradverify.run.execute import execute
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
from tests.core.support import claimed, double

SPECS = Path(__file__).parent.parent / "specs"
WRONG = claimed(torch.sin, torch.sin)


def test_a_right_gradient_passes_and_the_callers_tensors_are_untouched() -> None:
    x = double([0.5, -1.0])
    result = gradverify.verify(torch.sin, (x,), checks=("gradcheck", "gradgradcheck"))
    assert result.verdict == "pass"
    assert isinstance(result, gradverify.CaseResult)
    assert x.tolist() == [0.5, -1.0]
    assert x.grad is None
    gradverify.assert_gradients(torch.sin, (x,))


def test_every_check_leaves_the_random_numbers_and_the_inputs_alone() -> None:
    def states() -> tuple[Any, ...]:
        numbers = np.random.get_state(legacy=False)["state"]
        return torch.get_rng_state().tolist(), random.getstate(), numbers["pos"], numbers["key"].tobytes()

    def drawing(x: Tensor) -> Tensor:
        return x * torch.rand(x.shape, dtype=x.dtype) * random.random() * float(np.random.rand())

    for check in CHECKS:
        x = double([0.5, -1.0])
        before = states()
        gradverify.verify(drawing, (x,), checks=(check.name,))
        assert states() == before, check.name
        assert x.tolist() == [0.5, -1.0]
        assert x.grad is None


def test_a_wrong_gradient_raises_with_the_table() -> None:
    with pytest.raises(gradverify.GradientMismatch, match=r"backward\s+says") as caught:
        gradverify.assert_gradients(WRONG, (double([0.5, -1.0]),))
    assert isinstance(caught.value, AssertionError)
    assert caught.value.result.verdict == "fail"
    assert caught.traceback[-1].ishidden(caught)  # pytest shows the user's line and the table, and nothing of ours


@pytest.mark.parametrize("checks", ["gradcheck", (), ("gradchek",), None, 3])
def test_checks_that_are_none_are_refused(checks: Any) -> None:
    with pytest.raises(ValueError, match="checks: expected a tuple of gradcheck, gradgradcheck"):
        gradverify.assert_gradients(WRONG, (double([0.5]),), checks=checks)


def test_a_skip_is_no_proof() -> None:
    with pytest.raises(gradverify.GradientMismatch):
        gradverify.assert_gradients(torch.sin, (double([0.5]),), checks=("forward_ad",))


@pytest.mark.parametrize(
    "options",
    [
        {"rtol": -1},
        {"atol": float("nan")},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": True},
        {"rtol": "x"},
        {"torch_gradcheck": "foo"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        gradverify.verify(torch.sin, (double([0.5]),), **options)


def test_mistakes_in_the_call_are_said() -> None:
    x = double([0.5])
    with pytest.raises(TypeError, match=r"write \(x,\)"):
        gradverify.verify(torch.sin, x)
    with pytest.raises(TypeError, match="expected a Function class or a callable, found NoneType"):
        gradverify.verify(None, (x,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"found the class Linear; make one, Linear\(…\)"):
        gradverify.verify(torch.nn.Linear, (x,))
    for inputs, found in (({"x": x}, "dict"), (None, "NoneType"), (3, "int"), ("x", "str")):
        with pytest.raises(TypeError, match=f"inputs: expected a tuple of forward's arguments, found {found}"):
            gradverify.verify(torch.sin, inputs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names: expected a tuple of names, found text 'ab'"):
        gradverify.verify(torch.add, (x, x), names="ab")
    with pytest.raises(ValueError, match="names: expected one per input, 1 in all, found 2"):
        gradverify.verify(torch.sin, (x,), names=("a", "b"))


def test_the_numbers_are_those_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SPECS / "ops"))
    from custom_exp import CustomExp

    case = next(case for case in expand(read_paths([SPECS / "custom_exp.yaml"]).specs) if "published" in case.id)
    spec = execute(case)
    mine = gradverify.verify(CustomExp, (double([1.0, 2.0]),), checks=case.checks)
    assert mine.to_dict()["checks"] == spec.to_dict()["checks"]
    sys.modules.pop("custom_exp")


def test_backward_is_named_where_it_is() -> None:
    by_class, by_apply, by_graph = (
        gradverify.verify(function, (double([0.5]),), torch_gradcheck="never").source
        for function in (Halved, Halved.apply, lambda x: Halved.apply(x) + 1)
    )
    assert by_class is not None
    assert Path(by_class.file).name == "test_api.py"
    assert by_class == by_apply == by_graph
    assert gradverify.verify(torch.sin, (double([0.5]),)).source is None


def test_a_line_that_raised_is_relative_to_where_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    (found,) = gradverify.verify(raising, (double([0.5]),)).checks
    assert found.message.startswith("forward raised ValueError: no (test_api.py:")
    assert found.message.endswith(" in raising)")


def raising(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad / 2
