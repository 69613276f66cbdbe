"""gradgradcheck says first why backward's own derivative is wrong, where that can be told."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.api.verify import GradientMismatch, assert_gradients
from gradverify.checks.registry import run_check
from gradverify.result import CheckResult, Verdict
from tests.checks.contract.support import X, product, sine
from tests.core.support import ALONE, double, normal, problem_of

REMEDY = "recompute it in backward from saved inputs or outputs, or mark backward @once_differentiable"


def checked(function: Callable[..., Any], *inputs: Tensor, check: str = "gradgradcheck") -> CheckResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_check(check, problem_of(function, *inputs), ALONE)


def keeping(keep: Callable[[Any, Tensor], None], slope: Callable[[Any], Any]) -> Callable[[Tensor], Tensor]:
    """Return the sine with what `keep` keeps of its input, and `slope` of what is kept for a derivative."""

    class Keeps(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            keep(ctx, x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * slope(ctx)

    return Keeps.apply


def on_ctx(**values: Any) -> Callable[[Any, Tensor], None]:
    """Return what keeps functions of x as attributes."""

    def keep(ctx: Any, x: Tensor) -> None:
        for name, value in values.items():
            setattr(ctx, name, value(x))

    return keep


def test_a_saved_intermediate_is_named_first() -> None:
    result = checked(keeping(lambda ctx, x: ctx.save_for_backward(x.cos()), lambda ctx: ctx.saved_tensors[0]), X)
    first = result.findings[0]
    assert (result.verdict, first.code, first.verdict) == (Verdict.FAIL, "GV502", Verdict.FAIL)
    assert first.message == (
        "an intermediate is saved: autograd treats saved tensor 0 of Keeps as constant, so backward's own derivative"
        f" misses what depends on the inputs through it; {REMEDY}"
    )
    assert {finding.code for finding in result.findings[1:]} == {"GV202"}


def test_the_reason_stands_first_in_the_text_of_a_failure() -> None:
    saves = keeping(lambda ctx, x: ctx.save_for_backward(x.cos()), lambda ctx: ctx.saved_tensors[0])
    with pytest.raises(GradientMismatch) as caught:
        assert_gradients(saves, (X,), checks=("gradcheck", "gradgradcheck"))
    text = str(caught.value)
    assert text.index("gradgradcheck: ✗ fail") < text.index("GV502  an intermediate is saved") < text.index("GV202")


def test_a_tensor_on_ctx_is_named() -> None:
    first = checked(keeping(on_ctx(slope=torch.cos), lambda ctx: ctx.slope), X).findings[0]
    assert first.code == "GV502"
    assert first.message.startswith(
        "an intermediate is kept as an attribute on ctx: autograd treats ctx.slope of Keeps as constant, "
    )


def test_a_number_on_ctx_that_is_computed_from_the_input_is_named() -> None:
    class Norm(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.norm = float(x.norm())
            return x.norm()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0] / ctx.norm

    first = checked(Norm.apply, X).findings[0]
    assert (first.code, "autograd treats ctx.norm of Norm as constant" in first.message) == ("GV502", True)


def no_grad(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
    with torch.no_grad():
        return grad * x.cos()


def test_a_backward_under_no_grad_is_named() -> None:
    first = checked(sine(no_grad), X).findings[0]
    assert first.code == "GV501"
    assert first.message == (
        "backward computes its gradient, or a part of it, without a graph (under no_grad, or from .detach(), .data or"
        " .item()); differentiate it properly, or mark backward @once_differentiable"
    )


class WrongTwice(Function):
    """The vjp of the sine, with a wrong derivative by the cotangent."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(grad, x)
        return grad * x.cos()

    @staticmethod
    def backward(ctx: Any, again: Tensor) -> tuple[Tensor, Tensor]:
        grad, x = ctx.saved_tensors
        return again * x.sin(), -again * grad * x.sin()


def test_a_function_that_backward_calls_is_named_as_a_suspect() -> None:
    first = checked(sine(lambda ctx, x, grad: WrongTwice.apply(grad, x)), X).findings[0]
    assert first.code == "GV501"
    assert first.message.startswith(
        "the derivative of WrongTwice, which backward calls, is wrong, or backward computes its gradient, or a part of"
        " it, without a graph "
    )


class Length(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        length = x.square().sum(-1, keepdim=True).sqrt()
        ctx.save_for_backward(x, length)
        return length

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, length = ctx.saved_tensors
        return (grad * x / length).masked_fill(length == 0, 0.0)


def test_a_second_derivative_of_nan_is_no_missing_graph() -> None:
    result = checked(Length.apply, double([[0.0, 0.0], [1.0, 2.0], [0.0, -1.0]]))
    assert {finding.code for finding in result.findings if finding.verdict is Verdict.FAIL} == {"GV203"}
    worst = result.findings[0].elements[0]
    assert math.isnan(worst.analytic) and math.isfinite(worst.numeric)  # an entry with no known derivative comes later


@pytest.mark.parametrize("check", ["gradgradcheck", "contract"])
def test_a_slope_from_detached_inputs_is_named(check: str) -> None:
    result = checked(sine(lambda ctx, x, grad: grad * x.detach().cos()), X, check=check)
    first = result.findings[0]
    assert (first.code, first.verdict is Verdict.FAIL) == ("GV501", check == "gradgradcheck")
    assert first.message.startswith("the part of backward that depends on x is computed without a graph ")


def test_a_second_derivative_that_is_nan_at_zeros_says_so() -> None:
    root = sine(lambda ctx, x, grad: grad * torch.cos((x * x).sqrt()))
    (finding,) = checked(root, double([0.0, 1.0, 2.0])).findings
    assert finding.code == "GV203"
    assert "not finite where the derivative is, all by inputs that are exactly 0 (0/0 or 0·inf in backward);" in (
        finding.message
    )


RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "recomputed where it is differentiated": keeping(
        lambda ctx, x: ctx.save_for_backward(x, x.cos()),
        lambda ctx: ctx.saved_tensors[0].cos() if torch.is_grad_enabled() else ctx.saved_tensors[1],
    ),
    "kept and not used": keeping(
        lambda ctx, x: ctx.save_for_backward(x, x.cos()), lambda ctx: ctx.saved_tensors[0].cos()
    ),
    "a view of the input, kept and not used": keeping(
        lambda ctx, x: (ctx.save_for_backward(x), setattr(ctx, "flat", x.view(-1)))[0],
        lambda ctx: ctx.saved_tensors[0].cos(),
    ),
    "a number for the log alone": keeping(
        lambda ctx, x: (ctx.save_for_backward(x), setattr(ctx, "size", float(x.norm())))[0],
        lambda ctx: ctx.saved_tensors[0].cos(),
    ),
}


@pytest.mark.parametrize("check", ["contract", "gradgradcheck"])
@pytest.mark.parametrize("name", RIGHT)
def test_an_intermediate_that_the_second_derivative_does_not_need_is_not_accused(name: str, check: str) -> None:
    assert not {"GV501", "GV502"} & {finding.code for finding in checked(RIGHT[name], X, check=check).findings}
    assert check == "contract" or checked(RIGHT[name], X, check=check).verdict is Verdict.PASS


class Exp(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0]


class Softmax(Function):
    """Saves a shift, which cancels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x, x.amax(-1, keepdim=True))
        return x.softmax(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, shift = ctx.saved_tensors
        y = (x - shift).exp() / (x - shift).exp().sum(-1, keepdim=True)
        return y * (grad - (grad * y).sum(-1, keepdim=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("right", [Exp.apply, Softmax.apply])
def test_an_output_that_is_saved_and_a_shift_that_cancels_are_not_accused(
    right: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    assert checked(right, X.detach().to(dtype).requires_grad_(), check="contract").findings == ()


def test_an_intermediate_in_float32_is_named() -> None:
    saves = keeping(lambda ctx, x: ctx.save_for_backward(x.cos()), lambda ctx: ctx.saved_tensors[0])
    assert checked(saves, X.detach().float().requires_grad_()).findings[0].code == "GV502"


def test_a_wrong_second_derivative_for_another_reason_gets_no_reason() -> None:
    class Slope(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
            ctx.save_for_backward(x, grad)
            return grad * x.cos()

        @staticmethod
        def backward(ctx: Any, outer: Tensor) -> Any:
            x, grad = ctx.saved_tensors
            return outer * grad * x.sin(), outer * x.cos()  # the sign of the first is wrong

    class Sine(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x, x.cos())  # the second is not used
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return Slope.apply(ctx.saved_tensors[0], grad)

    result = checked(Sine.apply, X)
    assert result.verdict is Verdict.FAIL
    assert {finding.code for finding in result.findings} == {"GV201"}


def test_a_backward_that_is_not_linear_is_not_called_undifferentiable() -> None:
    result = checked(sine(lambda ctx, x, grad: (grad * x.cos()).clamp(-0.1, 0.1).detach()), X)
    assert "GV501" not in {finding.code for finding in result.findings}


class Squares(Function):
    """3x², with a right gradient, and a second derivative that is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return 3 * x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return SlopesOfSquares.apply(x, grad, ctx.factor), None


class SlopesOfSquares(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(x, grad)
        ctx.factor = factor
        return 6 * x * grad

    @staticmethod
    def backward(ctx: Any, second: Tensor) -> Any:
        x, grad = ctx.saved_tensors
        return ctx.factor * 6 * grad * second, 6 * x * second, None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "factor", "passes"),
    [
        *((count, factor, factor == 1.0) for count in (1, 5) for factor in (1.0, 2.0, 0.0, -1.0)),
        (12, 1.0, True),
        (12, 2.0, False),
    ],
)
def test_a_kink_of_forward_hides_no_wrong_second_derivative(count: int, factor: float, passes: bool) -> None:
    x = double([0.0] * count)
    for function in (
        lambda x: x.abs().sum() + Squares.apply(x, factor).sum(),
        lambda x: x.abs() + Squares.apply(x, factor),
        lambda x: torch.cat([x.relu(), Squares.apply(x, factor)]),
    ):
        assert (checked(function, x).verdict is Verdict.PASS) is passes


class FromNumPy(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return torch.from_numpy(grad.numpy() * x.detach().cos().numpy())


class Misspelt(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.x.cos()


def test_a_backward_that_raises_only_where_it_is_differentiated_is_told_how_to_declare_that() -> None:
    result = checked(FromNumPy.apply, X)
    assert (result.verdict, [each.code for each in result.findings]) == (Verdict.ERROR, ["GV903"])
    assert result.message.endswith(
        "in backward); only with create_graph=True: make backward differentiable, or mark it @once_differentiable"
    )


def test_a_backward_that_always_raises_is_not_told_to_declare_anything() -> None:
    assert "once_differentiable" not in checked(Misspelt.apply, X).message


def test_nor_is_one_whose_derivative_raises() -> None:
    result = checked(cube(lambda weight, grad, x: (3 * x * x * weight, grad * undefined)), X)  # type: ignore[name-defined] # noqa: F821
    assert result.message.endswith("in <lambda>); in the derivative of backward")


def test_each_forward_is_counted_once() -> None:
    calls = 0

    class Cubed(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return 3 * grad * x**2

    assert checked(Cubed.apply, X).evaluations.forward == calls > 0


def cube(
    second: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], needed_by: int = 1
) -> Callable[[Tensor], Tensor]:
    """Return the sum of cubes, whose backward is a Function; `second` maps its cotangent, grad and x to gradients.

    The one by x is None unless the input of that Function with the number `needed_by` needs one: grad is 0, and x is 1.
    """

    class Slope(Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(grad, x)
            return 3 * x * x * grad

        @staticmethod
        def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor | None]:
            by_grad, by_x = second(weight, *ctx.saved_tensors)
            return by_grad.sum(), by_x if ctx.needs_input_grad[needed_by] else None

    class Cube(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x**3).sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Slope.apply(grad, *ctx.saved_tensors)

    return Cube.apply


@pytest.mark.parametrize("seed", range(3))
def test_cotangents_are_no_inputs_drawn_from_the_same_seed(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn((), dtype=torch.float64, requires_grad=True)
    wrong = cube(lambda weight, grad, x: (3 * x * x * weight, 6 * x * x * weight))  # x where grad belongs
    assert run_check("gradgradcheck", problem_of(wrong, x), replace(ALONE, seed=seed)).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("of", [torch.abs, torch.neg, lambda grad: grad.clamp(max=0), lambda grad: grad.clamp(min=0)])
def test_a_second_derivative_that_is_right_for_one_sign_of_the_cotangent_fails(
    of: Callable[[Tensor], Tensor], seed: int
) -> None:
    right, wrong = (
        run_check("gradgradcheck", problem_of(cube(second), double([1.0, 2.0])), replace(ALONE, seed=seed))
        for second in (
            lambda weight, grad, x: (3 * x * x * weight, 6 * x * grad * weight),
            lambda weight, grad, x: (3 * x * x * weight, 6 * x * of(grad) * weight),
        )
    )
    assert (right.verdict, wrong.verdict, wrong.mismatched) == (Verdict.PASS, Verdict.FAIL, 2)


def test_a_second_derivative_that_is_lost_where_the_cotangent_is_constant_fails() -> None:
    """As in a gradient penalty."""
    right, wrong = (
        checked(cube(lambda weight, grad, x: (3 * x * x * weight, 6 * x * grad * weight), needed_by), X)
        for needed_by in (1, 0)
    )
    assert (right.verdict, right.findings) == (Verdict.PASS, ())
    assert (wrong.verdict, "GV404" in {finding.code for finding in wrong.findings}) == (Verdict.FAIL, True)


@pytest.mark.parametrize(
    "of", [lambda weight: weight.clamp(-1, 1), torch.abs, lambda weight: weight / weight.norm().clamp(min=1.0)]
)
def test_a_second_derivative_that_is_not_linear_in_its_cotangent_fails(of: Callable[[Tensor], Tensor]) -> None:
    x = double([0.5, -1.0, 2.0])
    right, wrong = (
        checked(cube(lambda weight, grad, x, of=of: (3 * x * x * of(weight), 6 * x * grad * of(weight))), x)  # type: ignore[misc]
        for of in (torch.clone, of)
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "GV301" in {finding.code for finding in wrong.findings}


def rows_of_cubes(second: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[[Tensor], Tensor]:
    """Return the sums of the cubes of rows, whose backward is a Function; `second` is as in `cube`."""

    class Slope(Function):
        latest: Tensor

        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(grad, x)
            Slope.latest = grad
            return 3 * x * x * grad[:, None]

        @staticmethod
        def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
            grad, x = ctx.saved_tensors
            return second(weight, Slope.latest if second is with_the_latest_cotangent else grad, x)

    class Cubes(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return (x**3).sum(1)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Slope.apply(grad, *ctx.saved_tensors)

    return Cubes.apply


def slopes_of_cubes(weight: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return (3 * x * x * weight).sum(1), 6 * x * grad[:, None] * weight


def in_order_of_memory(tensor: Tensor) -> Tensor:
    """Return the tensor as a kernel reads it that gets its address only."""
    return tensor.as_strided(tensor.shape, (tensor.shape[1], 1))


def with_cotangent_in_order_of_memory(weight: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return slopes_of_cubes(in_order_of_memory(weight), grad, x)


def with_input_in_order_of_memory(weight: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return slopes_of_cubes(weight, grad, in_order_of_memory(x))


def writing_to_the_input(weight: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    found = slopes_of_cubes(weight, grad, x)
    x.data.mul_(1.5)
    return found


def with_the_latest_cotangent(weight: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return slopes_of_cubes(weight, grad, x)


ROWS = double([[0.5, -1.0], [2.0, 1.5], [-0.7, 0.3]])


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (with_cotangent_in_order_of_memory, "GV307"),
        (with_input_in_order_of_memory, "GV403"),
        (writing_to_the_input, "GV402"),
        (with_the_latest_cotangent, "GV408"),
    ],
)
def test_a_function_that_backward_calls_keeps_the_promises_of_the_contract(
    second: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], code: str
) -> None:
    wrong = checked(rows_of_cubes(second), ROWS)
    assert wrong.verdict is Verdict.FAIL
    assert {finding.code for finding in wrong.findings} == {code}
    assert wrong.message.endswith("(in Slope, which backward calls, or in backward itself)")


@pytest.mark.parametrize(
    "second",
    [
        slopes_of_cubes,
        lambda weight, grad, x: slopes_of_cubes(in_order_of_memory(weight.contiguous()), grad, x),
        lambda weight, grad, x: slopes_of_cubes(weight.mul(2.0).mul_(0.5), grad, x),
    ],
)
def test_a_function_that_backward_calls_may_copy(
    second: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
) -> None:
    result = checked(rows_of_cubes(second), ROWS)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def product_with_slopes(second: Callable[[Any, Tensor, Tensor, Tensor, Tensor, Tensor], Any]) -> Callable[..., Tensor]:
    """Return a product of two tensors, real or complex, whose backward is a Function with the backward `second`."""

    class Slopes(Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(grad, a, b)
            return grad * b.conj(), grad * a.conj()

        @staticmethod
        def backward(ctx: Any, of_a: Tensor, of_b: Tensor) -> Any:
            return second(ctx, *ctx.saved_tensors, of_a, of_b)

    return product(lambda ctx, a, b, grad: Slopes.apply(grad, a, b))


def slopes(_ctx: Any, grad: Tensor, a: Tensor, b: Tensor, of_a: Tensor, of_b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return of_a * b + of_b * a, of_b.conj() * grad, of_a.conj() * grad


def with_swapped_flags(ctx: Any, *tensors: Tensor) -> tuple[Tensor | None, ...]:
    """Swaps the flags of a and b, which differ only where both derivatives are zero."""
    found = slopes(ctx, *tensors)
    return tuple(each if ctx.needs_input_grad[place] else None for each, place in zip(found, (0, 2, 1), strict=True))


def without_a_frozen_factor(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    by_grad, by_a, by_b = slopes(ctx, *tensors)
    return (by_grad if all(ctx.needs_input_grad) else 0 * by_grad), by_a, by_b


def that_fails_for_a_frozen_factor(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    assert ctx.needs_input_grad[1] and ctx.needs_input_grad[2]
    return slopes(ctx, *tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(
    ("second", "passes"),
    [
        (slopes, True),
        (with_swapped_flags, True),
        (without_a_frozen_factor, False),
        (that_fails_for_a_frozen_factor, False),
    ],
)
def test_a_second_derivative_that_depends_on_what_needs_a_gradient_fails(
    second: Callable[..., Any], passes: bool, dtype: torch.dtype
) -> None:
    a, b = (normal(2, seed=seed, dtype=dtype) for seed in (0, 1))
    result = checked(product_with_slopes(second), a, b)
    assert result.verdict is (Verdict.PASS if passes else Verdict.FAIL)
    assert {finding.code for finding in result.findings} == (set() if passes else {"GV404"})


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_second_derivative_that_drops_one_of_two_cotangents_fails(gives_up: bool) -> None:
    class Slopes(Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(grad, a, b)
            ctx.set_materialize_grads(False)
            return grad * b, grad * a

        @staticmethod
        def backward(ctx: Any, of_a: Tensor | None, of_b: Tensor | None) -> Any:
            grad, a, b = ctx.saved_tensors
            if gives_up and (of_a is None or of_b is None):
                return None, None, None
            of_a, of_b = (torch.zeros_like(a) if each is None else each for each in (of_a, of_b))
            return of_a * b + of_b * a, of_b * grad, of_a * grad

    outer = product(lambda ctx, a, b, grad: Slopes.apply(grad, a, b))
    found = checked(outer, double([1.0, 2.0]), double([3.0, 4.0]))
    assert (found.verdict, "GV308" in {finding.code for finding in found.findings}) == (
        (Verdict.FAIL, True) if gives_up else (Verdict.PASS, False)
    )
