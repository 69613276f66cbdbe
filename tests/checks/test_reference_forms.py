"""The check `reference` for every form of function, and what it says if there is nothing to compare."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

import gradverify
from gradverify.case import Settings
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult, Verdict
from gradverify.run.call import Call
from gradverify.run.reference import with_reference
from tests.checks.test_reference import drawn, held_against, kernel, softmax


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def two_outputs(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.exp().sum()


class TwoOutputs(Function):
    """The second output has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        return x.sin(), x.exp().sum()

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


def test_the_gradient_through_every_output_is_compared() -> None:
    assert held_against(two_outputs, two_outputs, drawn(5)).verdict is Verdict.PASS
    assert codes(held_against(TwoOutputs.apply, two_outputs, drawn(5))) == ["GV702"]


def test_outputs_can_be_chosen() -> None:
    x = drawn(5)
    problem = bind(TwoOutputs.apply, (x,), names=["x"], outputs=(0,))
    chosen = with_reference(problem, two_outputs, Call(names=("x",), args=(x,)), name="plain")
    assert run_check("reference", chosen, Settings()).verdict is Verdict.PASS


def test_integers_and_masks_are_passed_as_they_are() -> None:
    def chosen(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        assert (y.dtype, z.dtype) == (torch.int64, torch.bool)
        return x[y].masked_fill(z, 0.0)

    index, mask = torch.tensor([2, 0, 0]), torch.tensor([True, False, False])
    assert held_against(chosen, chosen, drawn(4, dtype=torch.bfloat16), index, mask).verdict is Verdict.PASS
    found = held_against(chosen, lambda x, y, z: x[y] + 0 * z, drawn(4), index, mask)
    assert codes(found) == ["GV701", "GV702"]


def test_broadcast_inputs() -> None:
    def scaled(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def last_row_only(grad: Tensor) -> Tensor:
        return grad if grad.dim() > 1 else 0.5 * grad

    x, y = drawn(6, 8, dtype=torch.bfloat16), drawn(8, dtype=torch.bfloat16, seed=1)
    assert held_against(kernel(scaled), scaled, x, y).verdict is Verdict.PASS
    found = held_against(kernel(scaled, backward=last_row_only), scaled, x, y)
    assert [(finding.code, finding.wrt) for finding in found.findings] == [("GV702", "y")]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tensors(dtype: torch.dtype) -> None:
    z = torch.complex(drawn(6).detach(), drawn(6, seed=1).detach()).to(dtype).requires_grad_()

    def squared(x: Tensor) -> Tensor:
        return x * x + 1j * x.conj()

    assert held_against(squared, squared, z).verdict is Verdict.PASS
    found = held_against(kernel(squared, backward=torch.conj), squared, z)
    assert [(finding.code, finding.wrt) for finding in found.findings] == [("GV702", "x.imag")]


def test_a_gradient_that_is_none() -> None:
    class Forgets(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return g * ctx.saved_tensors[0], None

    found = held_against(Forgets.apply, lambda x, y: x * y, drawn(4), drawn(4, seed=1))
    (finding,) = found.findings
    assert (finding.code, finding.wrt, finding.total) == ("GV702", "y", 4)
    assert finding.message.partition("\n")[0] == (
        "backward returns no gradient for y; by the reference, it is not zero in 4 entries"
    )
    unused = held_against(lambda x, y: x.sin(), lambda x, y: x.sin() + 0 * y, drawn(4), drawn(4, seed=1))
    assert unused.verdict is Verdict.PASS


def test_exact_zeros_by_cancellation() -> None:
    def total(x: Tensor) -> Tensor:
        return x.softmax(-1).sum(-1)

    def kernel_of_rows(x: Tensor) -> Tensor:
        y = (x.float() - x.float().amax(-1, keepdim=True)).exp()
        return (y / y.sum(-1, keepdim=True)).to(x.dtype).sum(-1)

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert held_against(kernel_of_rows, total, drawn(4, 64, dtype=dtype)).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_saturated_inputs(dtype: torch.dtype) -> None:
    x = drawn(4, 16, dtype=dtype, scale=30.0)
    for plain in (softmax, torch.sigmoid, torch.tanh):
        assert held_against(kernel(plain), plain, x).verdict is Verdict.PASS


def fast(x: Tensor) -> Tensor:
    return (1000 * x).sin()


class Fast(Function):
    """Times `factor`, the derivative of `fast`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return fast(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.factor * g * 1000 * (1000 * x).cos(), None


@pytest.mark.parametrize("factor", [0.0, 1.0, 3.0])
def test_a_tensor_that_rounding_may_change_by_its_size_is_no_pass(factor: float) -> None:
    """Half an ulp of x in bfloat16 turns 1000 x by a whole turn."""
    found = held_against(lambda x: Fast.apply(x, factor), fast, drawn(64, dtype=torch.bfloat16))
    assert (found.verdict, codes(found)) == (Verdict.INCONCLUSIVE, ["GV701", "GV702"])
    assert not any(finding.cause for finding in found.findings)
    assert found.message.startswith("output cannot be judged: rounding in bfloat16 may change it by as much as it is")
    exact = held_against(lambda x: Fast.apply(x, factor), fast, drawn(64, dtype=torch.float64))
    assert exact.verdict is (Verdict.PASS if factor == 1.0 else Verdict.FAIL)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_gradient_that_is_zero_but_for_rounding_agrees(dtype: torch.dtype) -> None:
    def shifted(x: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm((x + bias).float() if dtype is torch.bfloat16 else x + bias, (16,)).to(x.dtype)

    found = held_against(shifted, shifted, drawn(8, 16, dtype=dtype), drawn(1, dtype=dtype, seed=1))
    assert found.verdict is Verdict.PASS


def test_an_overflow_that_the_reference_does_not_have() -> None:
    def naive(x: Tensor) -> Tensor:
        return x.exp() / x.exp().sum(-1, keepdim=True)

    x = torch.tensor([[12.0, 3.0]], dtype=torch.float16, requires_grad=True)
    found = held_against(naive, softmax, x)
    assert set(codes(found)) == {"GV705"}


def test_a_number_that_the_dtype_cannot_hold_may_be_infinite() -> None:
    x = torch.tensor([12.0, 3.0], dtype=torch.float16, requires_grad=True)
    assert held_against(torch.exp, torch.exp, x).verdict is Verdict.PASS


def detached(x: Tensor) -> Tensor:
    return x / x.detach().norm()


def test_a_reference_with_a_wrong_gradient() -> None:
    found = held_against(detached, detached, drawn(8))
    assert (found.verdict, codes(found)) == (Verdict.ERROR, ["GV703"])
    assert found.message.startswith("plain has a wrong gradient of its own, and nothing can be compared with it: along")
    assert held_against(torch.relu, torch.relu, drawn(1000)).verdict is Verdict.PASS


def test_a_wrong_gradient_beside_infinite_outputs() -> None:
    def masked(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.masked_fill(torch.tensor([True, False, False]), -torch.inf), detached(x)

    assert codes(held_against(masked, masked, drawn(3))) == ["GV703"]

    def at_edge(x: Tensor) -> Tensor:
        return x.log() / x.detach().norm()

    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    assert codes(held_against(at_edge, at_edge, x)) == ["GV703"]
    assert held_against(torch.log, torch.log, x).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("plain", [torch.relu, functional.hardswish, lambda x: x.amax(-1), lambda x: x.relu().sqrt()])
def test_inputs_at_kinks_do_not_make_a_reference_wrong(plain: Any, dtype: torch.dtype) -> None:
    x = drawn(8, 32, dtype=dtype, seed=4).detach().round().requires_grad_()
    assert held_against(plain, plain, x).verdict is Verdict.PASS
    assert codes(held_against(detached, detached, x)) == ["GV703"]


def test_references_that_cannot_be_used() -> None:
    def raises(x: Tensor) -> Tensor:
        raise ValueError("no")

    raised = held_against(torch.sin, raises, drawn(3))
    assert (raised.verdict, codes(raised)) == (Verdict.ERROR, ["GV704"])
    assert raised.message.startswith("reference raised ValueError: no (")
    other = held_against(torch.sin, two_outputs, drawn(3))
    assert codes(other) == ["GV704"]
    assert other.message == "plain returns 2 tensors, the function one tensor; `outputs` can choose among them"
    coarse = held_against(torch.sin, lambda x: torch.ones(3) * float(x.detach().sum()), drawn(3))
    assert coarse.message.endswith("too coarse to compare float32 with; a reference casts nothing")


def test_what_a_reference_casts_to_narrower_dtypes_stays_in_float64() -> None:
    def by_complex_numbers(x: Tensor) -> Tensor:
        return torch.view_as_real(x.to(torch.complex64)).sum(-1).sin()

    for plain in (lambda x: x.float().sin(), lambda x: x.to(torch.bfloat16).sin().to(x.dtype), by_complex_numbers):
        assert held_against(torch.sin, plain, drawn(3)).verdict is Verdict.PASS


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (0.0, Verdict.FAIL), (-1.0, Verdict.FAIL)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_loss_in_float32_hides_no_wrong_gradient(dtype: torch.dtype, factor: float, verdict: Verdict) -> None:
    """Products of narrow numbers lie on ties of float32: rounding there is no jump of the reference."""
    target = torch.arange(33) % 65

    def plain(x: Tensor, weight: Tensor) -> Tensor:
        return functional.cross_entropy((x @ weight.T).float(), target).to(x.dtype)

    class Loss(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return plain(x, weight)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            logits = (x @ weight.T).float()
            error = (logits.softmax(-1) - functional.one_hot(target, 65)) / len(x) * grad.float() * factor
            return error.to(x.dtype) @ weight, error.to(x.dtype).T @ x

    x, weight = (drawn(size, 17, dtype=dtype, seed=size) for size in (33, 65))
    assert held_against(Loss.apply, plain, x, weight).verdict is verdict


def test_shapes_and_dtypes_of_outputs() -> None:
    shape = held_against(torch.sin, lambda x: x.sin()[None], drawn(3))
    assert (codes(shape), shape.message) == (["GV706"], "output has shape [3], but plain returns [1, 3]")
    dtype = held_against(lambda x: x.float().sin(), torch.sin, drawn(3, dtype=torch.bfloat16))
    assert (dtype.verdict, codes(dtype)) == (Verdict.FAIL, ["GV706"])
    assert dtype.message == "output is float32, but plain returns bfloat16"
    promoted = held_against(
        lambda x: x.float().sin(), lambda x: x.sin() * torch.ones(3), drawn(3, dtype=torch.bfloat16)
    )
    assert promoted.verdict is Verdict.PASS


class Cube(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.factor * g * x * x, None


class Hidden(Function):
    """torch cannot differentiate this forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach() * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


def test_without_a_reference_a_plain_forward_is_differentiated_by_torch() -> None:
    x = drawn(6, dtype=torch.bfloat16)
    right, wrong = (
        run_check("reference", bind(Cube.apply, (x, factor), names=["x", "factor"]), Settings())
        for factor in (3.0, 2.0)
    )
    assert right.verdict is Verdict.PASS
    assert right.message.startswith("12 entries agree with torch's own derivative of its forward for 5 cotangents; ")
    assert right.message.endswith("; no reference was given")
    assert (wrong.verdict, codes(wrong)) == (Verdict.FAIL, ["GV702"])
    assert run_check("reference", bind(Hidden.apply, (x,), names=["x"]), Settings()).verdict is Verdict.SKIP


def test_without_a_reference_the_check_is_skipped() -> None:
    found = run_check("reference", bind(torch.sin, (drawn(3),), names=["x"]), Settings())
    assert found.verdict is Verdict.SKIP
    assert "`reference` names plain code" in found.message


class Linear(torch.nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.linear, self.factor = torch.nn.Linear(4, 3), factor

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.factor * self.linear(x).relu()
        return result


def plain_linear(x: Tensor, **parameters: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, parameters["linear.weight"], parameters["linear.bias"]).relu()


def test_modules_are_compared_with_modules_and_with_functions_of_their_parameters() -> None:
    x = drawn(5, 4)
    gradverify.assert_matches(Linear(), Linear(), (x,))  # with other values at first
    gradverify.assert_matches(Linear(), plain_linear, (x,))
    result = gradverify.verify(Linear(), (x,), reference=Linear(1.01))
    assert [check.check for check in result.checks] == ["reference", "contract"]
    assert {finding.of or finding.wrt for finding in result.checks[0].findings} == {
        "output",
        "x",
        "linear.weight",
        "linear.bias",
    }
    with pytest.raises(TypeError, match=r"^reference: the reference has the parameters bias, weight, the function"):
        gradverify.verify(Linear(), (x,), reference=torch.nn.Linear(4, 3))


def test_in_python_a_mismatch_raises_with_the_table() -> None:
    wrong = kernel(softmax, backward=lambda grad: 1.01 * grad)
    with pytest.raises(gradverify.GradientMismatch, match=r"kernel +reference +error +allowed +ratio +ulps"):
        gradverify.assert_matches(wrong, softmax, (drawn(3, 4),))
    double = gradverify.verify(softmax, (drawn(3, 4, dtype=torch.float64),), reference=softmax)
    assert [check.check for check in double.checks] == ["reference", "contract", "gradcheck"]
    with pytest.raises(TypeError, match="reference: expected a callable or a module, found 3"):
        gradverify.verify(softmax, (drawn(3, 4),), reference=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reference: expected a callable or a module, found None"):
        gradverify.assert_matches(wrong, None, (drawn(3, 4),))  # type: ignore[arg-type]


def test_in_python_inputs_without_gradients_come_with_what_to_do() -> None:
    found = gradverify.verify(softmax, (torch.ones(3, 4),), reference=softmax)
    assert found.checks[0].message.endswith("that requires grad; in Python, `x.requires_grad_()` makes x one")


def test_tf32_is_not_allowed_for_on_the_cpu() -> None:
    tensor = drawn(5, 7)
    problem = bind(kernel(softmax, lambda output: output * 1.0003), [tensor], names=["x"])
    compared = with_reference(problem, softmax, Call(names=("x",), args=(tensor,)), name="plain")
    assert run_check("reference", compared, Settings(tf32=True)).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("own", "inside"),
    [(torch.float64, torch.float32), (torch.float64, torch.bfloat16), (torch.float32, torch.bfloat16)],
)
def test_outputs_that_were_computed_in_a_narrower_dtype_come_with_advice(own: torch.dtype, inside: torch.dtype) -> None:
    x, name = drawn(8, dtype=own), str(inside).removeprefix("torch.")
    found = held_against(lambda x: x.to(inside).sin().to(own), torch.sin, x)
    assert found.findings[0].code == "GV701"
    assert found.findings[0].message.endswith(
        f"all are {name} numbers: if it computes in {name} inside, set `dtypes: [{name}]`"
    )
    for wrong in (lambda x: x.sin() * 1.01, lambda x: x.sin() * 0 + torch.arange(len(x))):
        assert "dtypes" not in held_against(wrong, torch.sin, x).findings[0].message


def test_in_python_inputs_of_apply_are_called_as_in_forward() -> None:
    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, angle: Tensor) -> Tensor:
            ctx.save_for_backward(angle)
            return angle.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].sin()

    found = gradverify.verify(Sine.apply, (drawn(3),), reference=torch.sin)
    assert found.checks[0].findings[0].wrt == "angle"


class OneOutputWithoutGradient(Function):
    """sin with a wrong gradient, and exp, which is declared non-differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        second = x.exp()
        ctx.mark_non_differentiable(second)
        return x.sin(), second

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * g * x.cos()


def test_causes_beside_an_output_without_gradient() -> None:
    found = held_against(OneOutputWithoutGradient.apply, lambda x: (x.sin(), x.exp()), drawn(5))
    assert [(finding.code, finding.cause) for finding in found.findings] == [("GV702", "constant-factor")]


def test_no_elements_are_kept_if_none_are_asked_for() -> None:
    x = drawn(5)
    problem = bind(lambda x: 1.1 * x.sin(), [x], names=["x"])
    problem = with_reference(problem, torch.sin, Call(names=("x",), args=(x,)), name="plain")
    found = run_check("reference", problem, Settings(max_elements=0))
    assert [(finding.code, finding.elements) for finding in found.findings] == [("GV701", ()), ("GV702", ())]


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_squares_of_entries_that_overflow_or_underflow(scale: float) -> None:
    x = drawn(5, dtype=torch.float64, scale=scale)
    assert held_against(lambda x: 2 * x, lambda x: 2 * x, x).verdict is Verdict.PASS
    assert held_against(lambda x: 3 * x, lambda x: 2 * x, x).verdict is Verdict.FAIL


def test_random_numbers_that_differ_in_another_precision_are_no_pass_and_no_fail() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand_like(x)

    def dropped(x: Tensor) -> Tensor:
        return functional.dropout(x, 0.5)

    x = drawn(64)
    for function, plain in ((noisy, torch.sin), (torch.sin, noisy), (noisy, lambda x: 2 * noisy(x))):
        found = held_against(function, plain, x)
        assert (found.verdict, found.message) == (
            Verdict.SKIP,
            "function or reference draws random numbers, which are not the same in another precision",
        )
    same = held_against(dropped, dropped, x)
    assert same.verdict in (Verdict.SKIP, Verdict.PASS)
    if same.verdict is Verdict.PASS:  # the same numbers are dropped in both precisions
        assert same.detection_limit is not None and same.detection_limit < 1e-4


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (0.0, Verdict.FAIL), (1.5, Verdict.FAIL)])
def test_outputs_that_agree_show_that_the_random_numbers_are_the_same(factor: float, verdict: Verdict) -> None:
    def masked(x: Tensor) -> Tensor:
        return x.sin() * (torch.rand(x.shape, dtype=torch.float64) < 0.5).to(x.dtype)

    class Masked(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = masked(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            x, y = ctx.saved_tensors
            return factor * g * x.cos() * (y != 0)

    assert held_against(Masked.apply, masked, drawn(64)).verdict is verdict


class SinglePrecisionOnly(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


class Dropout(Function):
    """The random numbers are those of the input's dtype."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = torch.rand_like(x)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


@pytest.mark.parametrize(
    ("function", "reason"),
    [(SinglePrecisionOnly, "there is no reference to compare with"), (Dropout, "function or ref")],
)
def test_a_forward_that_cannot_be_its_own_reference_is_skipped(function: type[Function], reason: str) -> None:
    found = run_check("reference", bind(function.apply, [drawn(64)], names=["x"]), Settings())
    assert found.verdict is Verdict.SKIP
    assert found.message.startswith(reason)


def test_a_gradient_of_zeros_without_memory() -> None:
    x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    assert held_against(torch.sgn, torch.sgn, x).verdict is Verdict.PASS
