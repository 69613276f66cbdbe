"""GV602: a backward in low precision has the digits that its dtype has room for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from gradverify.case import Settings, Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.interception import plain_forwards
from gradverify.result import CheckResult, Verdict

NEGATIVE = torch.tensor([-12.0, -8.0, -9.0, -10.0])
ROWS = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) + 30
LOW = (torch.float32, torch.float16, torch.bfloat16)


def written(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> type[Function]:
    """Return a Function of this forward and this backward of the cotangent and the input."""

    class Written(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return backward(g, *ctx.saved_tensors)

    return Written


def precision(function: Callable[..., Any], *inputs: Tensor, **tolerances: float) -> CheckResult:
    settings = Settings(tolerances=Tolerances(**tolerances))
    points = [point.clone().requires_grad_(point.is_floating_point() or point.is_complex()) for point in inputs]
    return run_check("precision", bind(function, points, names=["x", "y"][: len(points)]), settings)


def cancelling(g: Tensor, x: Tensor) -> Tensor:
    return g * (1 - 1 / (1 + x.exp()))


def normalised(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)


def normalised_backward(g: Tensor, x: Tensor, deviation: Tensor) -> Tensor:
    unit = (x - x.mean(-1, keepdim=True)) / deviation
    return (g - g.mean(-1, keepdim=True) - unit * (g * unit).mean(-1, keepdim=True)) / deviation


def by_squares(g: Tensor, x: Tensor) -> Tensor:
    square, mean = (x * x).mean(-1, keepdim=True), x.mean(-1, keepdim=True)
    return normalised_backward(g, x, (square - mean**2).sqrt())


def by_deviations(g: Tensor, x: Tensor) -> Tensor:
    return normalised_backward(g, x, x.std(-1, keepdim=True, correction=0))


@pytest.mark.parametrize("dtype", LOW)
def test_digits_that_cancel(dtype: torch.dtype) -> None:
    result = precision(written(functional.softplus, cancelling).apply, NEGATIVE.to(dtype))
    (finding,) = result.findings
    assert (result.verdict, finding.code, finding.wrt) == (Verdict.FAIL, "GV602", "x")
    assert result.message.startswith(f"worse than {str(dtype).removeprefix('torch.')} explains: ")
    assert " entries of the gradient by x differ; for a " in result.message
    assert ", in float64 " in result.message
    assert finding.elements[0].error > finding.elements[0].allowed


@pytest.mark.parametrize(
    ("tolerances", "verdict"),
    [
        ({"rtol": 1e-4}, Verdict.FAIL),
        ({"rtol": 1e-1}, Verdict.PASS),
        ({"atol": 1e-9}, Verdict.FAIL),
        ({"atol": 1e-5}, Verdict.PASS),
    ],
)
def test_tolerances(tolerances: dict[str, float], verdict: Verdict) -> None:
    assert precision(written(functional.softplus, cancelling).apply, NEGATIVE, **tolerances).verdict is verdict


@pytest.mark.parametrize("dtype", LOW)
def test_the_right_formula_where_another_cancels(dtype: torch.dtype) -> None:
    assert precision(written(functional.softplus, lambda g, x: g * x.sigmoid()).apply, NEGATIVE.to(dtype)).verdict is (
        Verdict.PASS
    )


def test_what_is_lost_beside_larger_entries_is_no_loss() -> None:
    beside = torch.tensor([-12.0, -8.0, -9.0, 2.0])
    assert precision(written(functional.softplus, cancelling).apply, beside).verdict is Verdict.PASS


@pytest.mark.parametrize(("backward", "verdict"), [(by_squares, Verdict.FAIL), (by_deviations, Verdict.PASS)])
@pytest.mark.parametrize("dtype", LOW)
def test_variance_as_a_difference_of_squares(
    backward: Callable[[Tensor, Tensor], Tensor], verdict: Verdict, dtype: torch.dtype
) -> None:
    assert precision(written(normalised, backward).apply, ROWS.to(dtype)).verdict is verdict


def test_a_narrower_dtype_inside_backward() -> None:
    halved = written(torch.sin, lambda g, x: g * x.half().cos().float())
    assert precision(halved.apply, NEGATIVE).verdict is Verdict.FAIL
    assert precision(halved.apply, NEGATIVE.half()).verdict is Verdict.PASS


def test_an_overflow_on_the_way() -> None:
    result = precision(written(functional.softplus, lambda g, x: g * x.exp() / (1 + x.exp())).apply, NEGATIVE.neg() * 9)
    assert result.verdict is Verdict.FAIL
    assert " is nan, in float64 " in result.message


class Sigmoid(Function):
    """As torch writes it: 1 - y has few digits left where y is nearly one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x.sigmoid())
        return x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * y * (1 - y)


@pytest.mark.parametrize("dtype", LOW)
def test_what_torch_loses_too(dtype: torch.dtype) -> None:
    assert precision(Sigmoid.apply, NEGATIVE.neg().to(dtype)).verdict is Verdict.PASS


def test_a_kink_within_rounding() -> None:
    threshold = torch.tensor([0.1, 0.1 + 2.0**-27, 0.5, -0.5])
    shifted = written(lambda x: (x - 0.1).relu(), lambda g, x: g * (x - 0.1 > 0))
    assert precision(shifted.apply, threshold).verdict is Verdict.PASS


class Reused(Function):
    """A product with a second output that has no gradient, set up apart."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * y, (x > y).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return g * y, g * x.half().to(x.dtype)


def test_several_inputs_and_outputs_of_which_one_has_no_gradient() -> None:
    result = precision(lambda x, y: Reused.apply(x, y), ROWS[0] / 30, ROWS[1] / 30)
    assert [finding.wrt for finding in result.findings] == ["y"]
    assert result.findings[0].total > 48  # at all of three points: some are right by luck at one


class InPlace(Function):
    """Doubles its input where it stands."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


def test_a_forward_in_place() -> None:
    result = precision(InPlace.apply, NEGATIVE)
    assert (result.verdict, result.message) == (Verdict.PASS, "as exact as float32 can be")


def test_a_forward_that_torch_cannot_differentiate() -> None:
    def square(x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() ** 2)

    exact = precision(written(square, lambda g, x: 2 * g * x).apply, NEGATIVE)
    assert exact.verdict is Verdict.PASS
    assert exact.message.endswith("since torch's own derivative of this forward is missing or another")
    wrong = precision(written(square, lambda g, x: g * ((x + 1e6) ** 2 - x * x - 1e12) / 1e6).apply, NEGATIVE)
    assert wrong.verdict is Verdict.FAIL
    assert "torch's own" not in wrong.message


class SineOnce(Function):
    """Sine whose backward consumes what it saved: a second one on the same graph raises, or is wrong."""

    raises = True
    derivative: Callable[[Tensor], Tensor] = torch.cos

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = [x.clone()]
        return x.sin()

    @classmethod
    def gradient(cls, g: Tensor, x: Tensor) -> Tensor:
        return g * cls.derivative(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        cls = ctx._forward_cls
        if not ctx.kept and cls.raises:
            raise RuntimeError("backward may be called once")
        gradient: Tensor = cls.gradient(g, ctx.kept.pop() if ctx.kept else torch.zeros_like(g))
        return gradient


@pytest.mark.parametrize("raises", [True, False])
def test_a_graph_that_serves_one_backward(raises: bool) -> None:
    points = torch.linspace(-1, 1, 6)
    right = type("Right", (SineOnce,), {"raises": raises})
    assert precision(right.apply, points).verdict is Verdict.PASS  # type: ignore[attr-defined]
    wrong = type("Wrong", (SineOnce,), {"raises": raises, "derivative": lambda x: x.cos() + 1e4 - 1e4})
    assert precision(wrong.apply, points).verdict is Verdict.FAIL  # type: ignore[attr-defined]


def alone(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> type[Function]:
    """Return a Function whose forward torch cannot differentiate by itself."""
    return written(lambda x: forward(x).detach(), backward)


def test_what_rounding_of_the_input_explains() -> None:
    far = torch.tensor([29.7, 31.3, 30.1, 33.3])
    fast = alone(lambda x: (1000 * x).sin(), lambda g, x: g * 1000 * (1000 * x).cos())
    assert precision(fast.apply, far).verdict is Verdict.PASS
    assert precision(alone(lambda x: 30 * x, lambda g, x: g * 30 * (1 + 2.0**-12 * x.sin())).apply, far).verdict is (
        Verdict.PASS  # wrong in float64 too, which other checks see
    )


def test_a_gradient_that_the_dtype_has_no_room_for() -> None:
    steep = alone(lambda x: 300 * x.sqrt(), lambda g, x: g * 150 / x.sqrt())
    assert precision(steep.apply, torch.tensor([1e-6, 2e-6], dtype=torch.float16)).verdict is Verdict.PASS


def test_which_of_two_is_the_largest_may_be_another_in_float64() -> None:
    class Largest(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            values, where = (x.data @ y.data).max(-1)
            ctx.save_for_backward(x, y, where)
            return values

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y, where = ctx.saved_tensors
            chosen = torch.zeros(len(x), y.shape[1], dtype=g.dtype).scatter_(1, where[:, None], g[:, None])
            return chosen @ y.t(), x.t() @ chosen

    for seed in (2, 3):  # where it is another, in one row each
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.randn(200, 16, generator=generator).half(), torch.randn(16, 64, generator=generator).half()
        assert precision(Largest.apply, x, y).verdict is Verdict.PASS


def lossy(x: Tensor) -> Tensor:
    class Anew(Function):
        """A class of every call's own."""

        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return functional.softplus(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return cancelling(g, *ctx.saved_tensors)

    return Anew.apply(x)  # type: ignore[no-any-return]


def test_no_backward_of_anybodys_stands_in_for_torchs_own() -> None:
    assert precision(lossy, NEGATIVE).verdict is Verdict.FAIL
    outer = written(lossy, cancelling)
    assert precision(outer.apply, NEGATIVE).verdict is Verdict.FAIL


def test_a_straight_through_estimator_is_as_exact_as_any() -> None:
    assert precision(written(torch.round, lambda g, x: g).apply, NEGATIVE).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("function", "point", "why"),
    [
        (Sigmoid.apply, NEGATIVE.double(), "float64 is what lower precision is held against"),
        (
            Sigmoid.apply,
            NEGATIVE + 0j,
            "inputs in bfloat16, float16, float32 are held against float64, found complex64",
        ),
        (torch.sigmoid, NEGATIVE, "no hand-written Function here"),
        (written(lambda x: x * torch.rand_like(x), lambda g, x: g).apply, NEGATIVE, "draws random numbers"),
        (written(lambda x: x.view(torch.int32).view(torch.float32) * 1, lambda g, x: g).apply, NEGATIVE, "in float64"),
        (
            written(lambda x: x * 1, lambda g, x: torch.ones(4, 4) @ g / 4).apply,
            NEGATIVE,
            "backward does not take these numbers in float64: RuntimeError: ",
        ),
    ],
)
def test_what_cannot_be_compared_is_skipped(function: Callable[..., Any], point: Tensor, why: str) -> None:
    result = precision(function, point)
    assert result.verdict is Verdict.SKIP
    assert why in result.message


@pytest.mark.parametrize("differentiated", [True, False])
def test_a_tensor_that_is_bound_in_goes_along_to_float64(differentiated: bool) -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x @ y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return ((g + 1e3) - 1e3) @ y.t(), x.t() @ g

    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 5, generator=generator), torch.randn(5, 3, generator=generator)
    problem = bind(Product.apply, (x.requires_grad_(), y.requires_grad_(differentiated)), names=["x", "y"])
    assert [finding.wrt for finding in run_check("precision", problem, Settings()).findings] == ["x"]
    found = run_check("gradcheck", problem, Settings())
    assert found.message.endswith("differences are those of the same numbers in float64")


def test_nothing_to_differentiate() -> None:
    assert precision(torch.sigmoid, torch.arange(3)).findings[0].code == "GV907"


def test_functions_are_themselves_again_afterwards() -> None:
    x = NEGATIVE.clone().requires_grad_()
    with plain_forwards({Sigmoid}.__contains__):
        assert type(Sigmoid.apply(x).grad_fn).__name__ == "SigmoidBackward0"
        assert type(InPlace.apply(x.clone()).grad_fn).__name__ == "InPlaceBackward"
    assert type(Sigmoid.apply(x).grad_fn).__name__ == "SigmoidBackward"
    with pytest.raises(ZeroDivisionError), plain_forwards({Sigmoid}.__contains__):
        raise ZeroDivisionError
    assert type(Sigmoid.apply(x).grad_fn).__name__ == "SigmoidBackward"
