"""The Python interface: the same numbers as a spec, and no way to pass by mistake."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gradverify
from gradverify.case import DEFAULT_CHECKS
from gradverify.checks.registry import CHECKS
from gradverify.run.run_case import run_case
from gradverify.serial import from_plain
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
from tests.core.support import claimed, double, normal, with_backward

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


@pytest.mark.parametrize("checks", ["gradcheck", (), ("gradchek",), 3])
def test_checks_that_are_none_are_refused(checks: Any) -> None:
    with pytest.raises(ValueError, match="checks: expected a tuple of gradcheck, gradgradcheck"):
        gradverify.assert_gradients(WRONG, (double([0.5]),), checks=checks)


def test_a_result_is_true_if_every_check_passed_or_was_skipped() -> None:
    assert gradverify.verify(torch.sin, (double([0.5]),))
    assert not gradverify.verify(WRONG, (double([0.5]),))
    skipped = gradverify.verify(torch.sin, (double([0.5]),), checks=("forward_ad",))
    assert skipped.verdict == "skip"
    assert skipped
    gradverify.assert_gradients(torch.sin, (double([0.5]),), checks=("forward_ad",))


@pytest.mark.parametrize(("function", "verdict"), [(WRONG, "fail"), ("raising", "error"), ("unsteady", "inconclusive")])
def test_assert_gradients_raises_unless_everything_passes_or_is_skipped(function: Any, verdict: str) -> None:
    function = globals()[function] if isinstance(function, str) else function
    with pytest.raises(gradverify.GradientMismatch, match=f": {verdict}\n") as caught:
        gradverify.assert_gradients(function, (double([0.5, -1.0]),), checks=("gradcheck",))
    assert not caught.value.result


def test_the_default_checks_are_those_of_the_command_line() -> None:
    found = gradverify.verify(torch.sin, (double([0.5]),))
    assert tuple(check.check for check in found.checks) == DEFAULT_CHECKS == ("gradcheck", "gradgradcheck", "contract")


def test_a_result_prints_as_the_screen_shows_it_and_its_repr_is_one_short_line() -> None:
    result = gradverify.verify(WRONG, (double([0.5, -1.0]),), names=("x",))
    assert repr(result) == "<CaseResult Claimed: fail, gradcheck fail 2/4, gradgradcheck pass 8, contract pass>"
    lines = str(result).splitlines()
    assert lines[0].startswith("✗ FAIL  Claimed  ─")
    assert "  gradcheck: ✗ fail  2 of 4 entries differ" in lines
    assert max(map(len, lines)) <= 100
    passed = str(gradverify.verify(torch.sin, (double([0.5, -1.0]),)))
    assert "  gradcheck: ✓ pass  4 entries agree" in passed.splitlines()
    with pytest.raises(gradverify.GradientMismatch) as caught:
        gradverify.assert_gradients(WRONG, (double([0.5, -1.0]),), names=("x",))
    without_time = str(caught.value).partition("\n\n")[2]
    assert without_time == str(result)


def test_a_result_equals_what_is_read_back_from_its_dict() -> None:
    result = gradverify.verify(WRONG, (double([0.5]),))
    assert from_plain(gradverify.CaseResult, result.to_dict()) == gradverify.CaseResult(
        **{field.name: getattr(result, field.name) for field in fields(result)}
    )
    assert pickle.loads(pickle.dumps(result)) == result


def test_keyword_arguments_are_differentiated_and_called_by_their_keyword() -> None:
    def scaled(x: Tensor, *, weight: Tensor, power: int = 1) -> Tensor:
        return x * weight**power

    x, weight = double([0.5, -1.0]), double([2.0, 3.0])
    options = {"kwargs": {"weight": weight, "power": 2}}
    assert gradverify.verify(scaled, (x,), **options)
    wrong = gradverify.verify(lambda x, weight: x + WRONG(weight), (x,), kwargs={"weight": weight})
    assert {finding.wrt for finding in wrong.checks[0].findings} == {"weight"}
    assert weight.grad is None


def test_inputs_of_a_module_that_are_not_differentiated_are_named() -> None:
    x, labels = torch.ones(2, 3, dtype=torch.float64), torch.tensor([0, 1])
    bilinear = torch.nn.Bilinear(3, 3, 2, dtype=torch.float64)
    assert (
        "not require grad: input1"
        in gradverify.verify(bilinear, (x, x.clone().requires_grad_()), checks=["gradcheck"]).note
    )
    loss = torch.nn.NLLLoss()
    assert gradverify.verify(loss, (x.clone().requires_grad_(), labels), checks=["gradcheck"]).note == ""


def test_keyword_arguments_of_a_module_are_passed_on() -> None:
    class Shifted(torch.nn.Linear):
        def forward(self, x: Tensor, *, shift: Tensor | None = None) -> Tensor:  # type: ignore[override]
            return super().forward(x) + (0.0 if shift is None else WRONG(shift))

    found = gradverify.verify(Shifted(2, 2, dtype=torch.float64), (double([0.5, -1.0]),), kwargs={"shift": double(0.3)})
    assert {finding.wrt for finding in found.checks[0].findings if finding.verdict == "fail"} == {"shift"}


class Powered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 1.0, weight: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return scale * x * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad * ctx.scale * weight, None, grad * ctx.scale * x * 2


class KeywordOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *, scale: float) -> Tensor:
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def test_keyword_arguments_of_a_function_class_are_passed_by_position() -> None:
    inputs, weight = (double([0.5, -1.0]),), double([2.0, 3.0])
    found = gradverify.verify(Powered, inputs, kwargs={"weight": weight})
    assert {finding.wrt for finding in found.checks[0].findings} == {"weight"}
    with pytest.raises(TypeError, match="kwargs: apply takes no keyword arguments, but `scale` is one"):
        gradverify.verify(KeywordOnly, inputs, kwargs={"scale": 2.0})
    with pytest.raises(TypeError, match="kwargs: `x` is among `inputs` already"):
        gradverify.verify(Powered, inputs, kwargs={"x": weight})
    with pytest.raises(TypeError, match="kwargs: forward has no parameter `weigth`"):
        gradverify.verify(Powered, inputs, kwargs={"weigth": weight})


def test_keyword_arguments_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(TypeError, match="kwargs: expected a mapping of forward's keyword arguments, found list"):
        gradverify.verify(torch.sin, (double([0.5]),), kwargs=[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="kwargs: expected names of keyword arguments, found 1"):
        gradverify.verify(torch.sin, (double([0.5]),), kwargs={1: 2})  # type: ignore[dict-item]


def test_a_timeout_ends_between_two_calls_and_keeps_what_was_finished() -> None:
    def slow_when_differentiated_twice(grad: Tensor, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(0.5)
        return 2 * grad * x.cos()

    function = with_backward(torch.sin, slow_when_differentiated_twice)
    found = gradverify.verify(function, (double([0.5, -1.0]),), timeout=0.5, torch_gradcheck="never")
    assert [check.verdict for check in found.checks] == ["fail", "error", "skip"]
    assert found.checks[1].findings[0].code == "GV904"
    assert re.fullmatch(r"timed out after [0-9.]+ of 0\.5 s", found.checks[1].message)
    assert found.checks[2].message == f"not run: gradgradcheck {found.checks[1].message}"


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
        {"timeout": 0},
        {"timeout": True},
        {"timeout": float("nan")},
        {"timeout": 10**400},
        {"timeout": "60"},
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
    spec = run_case(case)
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
    found, *_ = gradverify.verify(raising, (double([0.5]),)).checks
    assert found.message.startswith("forward raised ValueError: no (test_api.py:")
    assert found.message.endswith(" in raising)")


def test_a_line_is_relative_to_where_one_was_before_forward_changed_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    found, *_ = gradverify.verify(moving, (double([0.5]),)).checks
    assert found.message.startswith("forward raised ValueError: no (test_api.py:")


def unsteady(x: torch.Tensor) -> torch.Tensor:
    return x * next(_NUMBERS)


_NUMBERS = itertools.count(1.0)


def moving(x: torch.Tensor) -> torch.Tensor:
    os.chdir(os.sep)
    raise ValueError("no")


def raising(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("no")


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad / 2


def test_printed_result_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    x = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)
    text = str(gradverify.verify(torch.sin, (x,)))
    assert max(map(len, text.splitlines())) <= 60


class Through(torch.autograd.Function):
    """Runs a module, and again in backward, as a checkpoint does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Any, *weights: Tensor) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            module = getattr(ctx.run, "__self__", ctx.run)
            by_x, *others = torch.autograd.grad(ctx.run(x), (x, *module.parameters()), grad)
        return by_x, None, *others


class Checkpointed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 2, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return Through.apply(x, self.inner, *self.inner.parameters())


def test_parameters_that_a_module_among_the_inputs_holds_too_are_refused() -> None:
    x, inner = normal(4, 3), torch.nn.Linear(3, 2, dtype=torch.float64)
    for run in (inner, inner.forward):
        with pytest.raises(ValueError, match=r"weights\[0\] is also a parameter of run, .* give verify a module"):
            gradverify.verify(Through, (x, run, *inner.parameters()))
    assert gradverify.verify(Checkpointed(), (x,), checks=["gradcheck"]).verdict == "pass"
