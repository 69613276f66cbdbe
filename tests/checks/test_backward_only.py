"""Functions that raise under `torch.autograd.grad` and work with `.backward()`, as reentrant checkpoints do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gradverify import verify
from gradverify.result import CheckResult, Verdict
from tests.core.support import double

pytestmark = pytest.mark.slow

X = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]])
NOTE = "; gradients are taken with .backward(), because backward raises under torch.autograd.grad"
SKIPPED = (
    "backward has no derivative of its own: it works only through .backward(), and gradients taken that way cannot be "
    "differentiated again"
)


def checked(function: Any, check: str, *inputs: Tensor) -> CheckResult:
    (result,) = verify(function, inputs or (X,), checks=(check,)).checks
    return result


class Guarded(Function):
    """Its backward refuses to run for some of the leaves only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("not compatible with .grad()")
        return grad * ctx.saved_tensors[0].cos()


class GuardedWrong(Guarded):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 1.01 * Guarded.backward(ctx, grad)


class Clipped(Guarded):
    """Not linear in the cotangent."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Guarded.backward(ctx, grad.clamp(-0.5, 0.5))


def reentrant(x: Tensor) -> Tensor:
    return checkpoint(lambda y: y.tanh() * y, x, use_reentrant=True)


@pytest.mark.slow
@pytest.mark.parametrize("function", [reentrant, Guarded, lambda x: (reentrant(x), x.sin())])
@pytest.mark.parametrize("check", ["gradcheck", "contract", "compile"])
def test_function_that_needs_backward_passes_and_the_message_says_how(function: Callable[..., Any], check: str) -> None:
    result = checked(function, check)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.message.endswith(NOTE)


def test_wrong_function_that_needs_backward_fails() -> None:
    result = checked(GuardedWrong, "gradcheck")
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 6)
    assert result.message == f"6 of 36 entries differ{NOTE}"
    assert {finding.code for finding in checked(Clipped, "contract").findings} == {"GV304"}


@pytest.mark.parametrize("function", [reentrant, Guarded])
def test_order_two_of_a_function_that_needs_backward_is_skipped_with_the_reason(function: Callable[..., Any]) -> None:
    result = checked(function, "gradgradcheck")
    assert (result.verdict, result.message, result.findings) == (Verdict.SKIP, SKIPPED, ())


def test_torch_gradcheck_is_skipped_with_the_reason() -> None:
    outcome = checked(Guarded, "gradcheck").torch
    assert outcome is not None
    assert outcome.message == "torch's check needs torch.autograd.grad, under which this backward raises"


def test_gradients_that_leaves_hold_are_left_alone() -> None:
    weight = double([0.5, 2.0, -1.0])
    weight.grad = torch.ones(3, dtype=torch.float64)
    x = X.detach().clone().requires_grad_()
    assert checked(lambda x: reentrant(x) * weight, "gradcheck", x).verdict is Verdict.PASS
    assert x.grad is None
    assert torch.equal(weight.grad, torch.ones(3, dtype=torch.float64))


class Recomputed(torch.nn.Module):
    """Calls a layer in a reentrant checkpoint, and scales its output by a parameter."""

    def __init__(self, scaled: Callable[[Tensor, Tensor], Tensor] = torch.mul) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3).double()
        self.scale = torch.nn.Parameter(double([0.5, 2.0, -1.0]).detach())
        self.scaled = scaled

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(checkpoint(self.layer, x, use_reentrant=True), self.scale)


class ScaledWrong(Function):
    """The gradient by the scale is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return grad * scale, 1.01 * (grad * x).sum(0)


class Ungrateful(Guarded):
    """Returns no gradient by the weight, though the output depends on it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x.sin() * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if not torch.autograd._is_checkpoint_valid():
            raise RuntimeError("use .backward()")
        x, weight = ctx.saved_tensors
        return grad * x.cos() * weight, None


@pytest.mark.parametrize("check", ["gradcheck", "contract", "compile"])
@pytest.mark.parametrize("before", [None, torch.ones(3, 3, dtype=torch.float64)])
def test_gradients_of_weights_inside_a_reentrant_checkpoint_are_left_alone(check: str, before: Tensor | None) -> None:
    layer = torch.nn.Linear(3, 3).double()
    layer.weight.grad = None if before is None else before.clone()
    result = checked(lambda x: checkpoint(layer, x, use_reentrant=True), check)
    assert (result.verdict, layer.bias.grad) == (Verdict.PASS, None)
    found = layer.weight.grad
    assert found is None if before is None else found is not None and torch.equal(found, before)


@pytest.mark.parametrize(
    ("check", "verdict", "codes"), [("gradcheck", Verdict.INCONCLUSIVE, ["GV104"]), ("compile", Verdict.SKIP, [])]
)
def test_parameters_read_inside_a_reentrant_checkpoint_are_not_judged(
    check: str, verdict: Verdict, codes: list[str]
) -> None:
    module = Recomputed()
    result = checked(module, check)
    assert (result.verdict, [finding.code for finding in result.findings]) == (verdict, codes)
    assert "layer.weight" in result.message
    assert "were not judged: backward adds them to the module's own parameters" in result.message
    assert all(parameter.grad is None for parameter in module.parameters())


def test_other_parameter_with_a_wrong_gradient_fails_beside_a_reentrant_checkpoint() -> None:
    result = checked(Recomputed(ScaledWrong.apply), "gradcheck")
    assert result.verdict is Verdict.FAIL
    assert {(finding.code, finding.wrt) for finding in result.findings} == {("GV101", "scale")}
    assert result.mismatched == 6


def test_missing_gradient_that_no_other_tensor_gets_fails() -> None:
    module = torch.nn.Linear(3, 1, bias=False).double()
    module.forward = lambda x: Ungrateful.apply(x, module.weight)  # type: ignore[method-assign,no-untyped-call]
    result = checked(module, "gradcheck")
    assert result.verdict is Verdict.FAIL
    assert {(finding.code, finding.wrt) for finding in result.findings} == {("GV102", "weight")}


def test_backward_that_raises_either_way_is_an_error_without_the_note() -> None:
    class Raises(Guarded):
        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            raise ValueError("always")

    result = checked(Raises, "gradcheck")
    assert result.verdict is Verdict.ERROR
    assert [finding.code for finding in result.findings] == ["GV903"]
    assert NOTE not in result.message


class Rerun(Function):
    """A checkpoint by hand: backward calls a module again, and adds to the module's own parameters."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        ctx.run = run
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            output = ctx.run(x)
        torch.autograd.backward(output, grad)
        return None, x.grad


class RunAgain(torch.nn.Module):
    def __init__(self, *, leaves_out: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2, dtype=torch.float64)
        self.leaves_out = leaves_out

    def forward(self, x: Tensor) -> Tensor:
        def run(x: Tensor) -> Tensor:
            output: Tensor = self.layer(x)
            return output.detach() + 0 * x.sum() if self.leaves_out else output

        found: Tensor = Rerun.apply(run, x)
        return found


@pytest.mark.parametrize("seed", [0, 8])  # with the second, the bias is further off than the weight
def test_parameters_that_a_checkpoint_by_hand_adds_to_are_not_judged(seed: int) -> None:
    torch.manual_seed(seed)
    right, wrong = (checked(RunAgain(leaves_out=leaves_out), "gradcheck") for leaves_out in (False, True))
    assert (right.verdict, right.mismatched) == (Verdict.INCONCLUSIVE, 0)
    assert "layer.weight and layer.bias were not judged" in right.message
    assert (wrong.verdict, {each.wrt for each in wrong.findings if each.verdict is Verdict.FAIL}) == (
        Verdict.FAIL,
        {"x", "layer.weight", "layer.bias"},
    )
