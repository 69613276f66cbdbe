"""GV501–GV504, GV506 and GV601: second order, forward mode, vmap and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from gradverify.result import Verdict
from tests.checks.contract.support import X, Y, contract, failing, product, remarked, sine
from tests.core.support import double


def test_detached_backward_is_remarked() -> None:
    result = contract(sine(lambda ctx, x, g: g.detach() * x.cos()), X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV501"}


def test_once_differentiable_backward_has_no_finding() -> None:
    class Declared(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x.cos())
            return x.sin()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    assert contract(Declared.apply, X).findings == ()


@pytest.mark.parametrize("as_attribute", [True, False])
def test_saved_intermediate_is_remarked(as_attribute: bool) -> None:
    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            slope = x.cos()
            ctx.slope = slope if as_attribute else None
            ctx.save_for_backward(slope)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * (ctx.saved_tensors[0] if ctx.slope is None else ctx.slope)

    result = contract(Saves.apply, X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV502"}


@pytest.mark.parametrize(("flattens", "codes"), [(True, {"GV502"}), (False, set())])
def test_saved_view_of_an_input_is_remarked(flattens: bool, codes: set[str]) -> None:
    """It is made in forward, where autograd records nothing; the input itself may be saved."""

    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.shape = x.shape
            x = x.reshape(-1) if flattens else x
            ctx.save_for_backward(x)
            return x.square().sum()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return (2 * g * ctx.saved_tensors[0]).reshape(ctx.shape)

    assert remarked(contract(Saves.apply, double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]]))) == codes


def test_saved_quotient_of_inputs_is_remarked() -> None:
    """It is the same if both inputs are scaled alike."""

    class Squares(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            quotient = x / y
            ctx.save_for_backward(y, quotient)
            return quotient.square()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            y, quotient = ctx.saved_tensors
            return 2 * g * quotient / y, -2 * g * quotient.square() / y

    assert remarked(contract(Squares.apply, X, Y)) == {"GV502"}


def test_saved_mask_has_no_finding() -> None:
    class Relu(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward((x > 0).to(x.dtype))
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    assert contract(Relu.apply, X).findings == ()


def with_jvp(jvp: Callable[[Tensor, Tensor], Tensor], slope: Callable[[Tensor], Tensor] = torch.cos) -> Any:
    class Sine(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * slope(ctx.saved_tensors[0])

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return jvp(ctx.saved_tensors[0], t)

    return Sine.apply


def test_jvp_that_disagrees_with_backward_fails() -> None:
    right = with_jvp(lambda x, t: t * x.cos())
    assert contract(right, X).findings == ()
    assert contract(right, X, check="forward_ad").verdict is Verdict.PASS
    wrong = contract(with_jvp(lambda x, t: t * x.sin()), X)
    assert failing(wrong) == {"GV503"}
    assert "differences agree with backward" in wrong.message
    backward_wrong = contract(with_jvp(lambda x, t: t * x.cos(), torch.sin), X)
    assert failing(backward_wrong) == {"GV503"}
    assert "differences agree with jvp" in backward_wrong.message


def test_forward_ad_fails_if_jvp_and_backward_are_both_wrong() -> None:
    both = with_jvp(lambda x, t: t * x.sin(), torch.sin)
    assert contract(both, X).findings == ()
    result = contract(both, X, check="forward_ad")
    assert failing(result) == {"GV503"}
    assert result.message == "jvp agrees with backward, and differences with neither: 5 of 25 entries differ"


def test_undefined_jvp_and_vmap_are_skipped() -> None:
    plain = sine(lambda ctx, x, g: g * x.cos())
    assert contract(plain, X, check="forward_ad").message == "no Function here defines jvp"
    assert contract(plain, X, check="forward_ad").verdict is Verdict.SKIP
    assert contract(plain, X, check="batching").verdict is Verdict.SKIP
    assert contract(torch.sin, X, check="forward_ad").verdict is Verdict.SKIP
    assert contract(torch.sin, X, check="batching").verdict is Verdict.SKIP


@pytest.mark.parametrize("right", [True, False])
def test_vmap_that_differs_from_a_loop_fails(right: bool) -> None:
    class Scaled(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, y = ctx.saved_tensors
            return _summed(g * y, x), _summed(g * x, y)

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> Any:
            if not right and in_dims[1] is None:
                return x * y.flip(0), 0
            x, y = (t if dim is None else t.movedim(dim, 0) for t, dim in zip((x, y), in_dims, strict=True))
            return Scaled.apply(x, y), 0

    def _summed(gradient: Tensor, like: Tensor) -> Tensor:
        return gradient.sum_to_size(like.shape)

    result = contract(Scaled.apply, X, Y)
    assert failing(result) == (set() if right else {"GV504"})
    assert contract(Scaled.apply, X, Y, check="batching").verdict is (Verdict.PASS if right else Verdict.FAIL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_backward_in_narrower_dtype_fails(dtype: torch.dtype) -> None:
    result = contract(sine(lambda ctx, x, g: (g.to(dtype) * x.to(dtype).cos()).to(x.dtype)), X)
    assert failing(result) == {"GV601"}
    assert str(dtype).removeprefix("torch.") in result.message
    product_in_double = contract(sine(lambda ctx, x, g: g * x.to(dtype).cos().to(x.dtype)), X)
    assert failing(product_in_double) == {"GV601"}


def test_forward_and_backward_in_float32_are_remarked() -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.float().sin().double()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return (g.float() * ctx.saved_tensors[0].float().cos()).double()

    result = contract(Mixed.apply, X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV601"}


def test_float32_constants_and_float32_inputs_pass() -> None:
    third = torch.tensor([1 / 3])
    constants = product(lambda ctx, x, y, g: (g * y * third / third.double(), g * x))
    assert contract(constants, X, Y).findings == ()
    single = contract(sine(lambda ctx, x, g: g * x.cos()), X.detach().float().requires_grad_())
    assert single.findings == ()


def test_jvp_in_place_gets_its_own_tangent() -> None:
    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x.exp_())
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return t.mul_(ctx.saved_tensors[0])

    assert contract(Exp.apply, X).findings == ()
    assert contract(Exp.apply, X, check="forward_ad").verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_is_not_reported_as_detached(dtype: torch.dtype) -> None:
    point = X.detach().to(dtype).requires_grad_()
    assert contract(sine(lambda ctx, x, g: g * x.cos()), point).findings == ()
    assert remarked(contract(sine(lambda ctx, x, g: g.detach() * x.cos()), point)) == {"GV501"}


@pytest.mark.parametrize("error", [KeyError("oops"), RuntimeError(""), NotImplementedError("no")])
def test_double_backward_that_raises_is_remarked(error: Exception) -> None:
    class Slope(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
            return g * x.cos()

        @staticmethod
        def backward(ctx: Any, h: Tensor) -> Any:
            raise error

    result = contract(sine(lambda ctx, x, g: Slope.apply(x, g)), X)
    assert result.verdict is Verdict.PASS
    assert remarked(result) == (set() if isinstance(error, NotImplementedError) else {"GV501"})


@pytest.mark.parametrize("said", ["", "no second derivative"])
def test_double_backward_not_implemented_is_skipped(said: str) -> None:
    class Slope(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
            return g * x.cos()

        @staticmethod
        def backward(ctx: Any, h: Tensor) -> Any:
            raise NotImplementedError(said)

    result = contract(sine(lambda ctx, x, g: Slope.apply(x, g)), X, check="gradgradcheck")
    assert result.verdict is Verdict.SKIP
    reason = said or "it raises NotImplementedError"
    assert result.message == f"backward has no derivative of its own: {reason}"


def test_message_shows_enough_digits_to_distinguish_jvp() -> None:
    result = contract(with_jvp(lambda x, t: t * x.cos() * (1 + 3e-7)), X)
    (_, jvp), (_, backward) = (part.split(" = ") for part in result.message.split(";")[0].split(": ")[1].split(", <B"))
    assert jvp != backward
    assert result.message.endswith("; differences cannot tell them apart")


@pytest.mark.parametrize(
    ("jvp", "said"),
    [
        (lambda x, t: t.mul_(x.cos()), "jvp by x modifies its tangent in place"),
        (lambda x, t: t * x.data.cos_(), "jvp by x modifies x in place"),
        (lambda x, t: None, "jvp by x returns None for an output: zeros where there is no tangent"),
    ],
)
def test_jvp_that_overwrites_or_returns_none_fails(jvp: Any, said: str) -> None:
    assert contract(with_jvp(jvp), X).message == said


def _refused(x: Tensor, t: Tensor) -> Tensor:
    raise NotImplementedError("no forward mode")


@pytest.mark.parametrize("declared", [True, False])
def test_forward_mode_not_implemented_is_skipped(declared: bool) -> None:
    right = with_jvp(lambda x, t: t * x.cos())
    function = with_jvp(_refused) if declared else lambda x: _Plain.apply(right(x))
    assert contract(function, X).findings == ()
    result = contract(function, X, check="forward_ad")
    assert result.verdict is Verdict.SKIP
    assert result.message.startswith("forward mode ends on the way: ")


class _Plain(Function):
    """Doubles x; defines no jvp."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


@pytest.mark.parametrize("around", [lambda y: y * float(y.detach().sum() > -9), lambda y: y if y.sum() > -9 else -y])
def test_vmap_that_fails_outside_the_function_is_skipped(around: Callable[[Tensor], Tensor]) -> None:
    def function(x: Tensor) -> Tensor:
        return around(_Plain.apply(x))

    assert contract(function, X).findings == ()
    result = contract(function, X, check="batching")
    assert result.verdict is Verdict.SKIP
    assert result.message.startswith("vmap ends on the way: ")


@pytest.mark.parametrize(("rule", "right"), [("first", False), ("given", True), ("refuses", True)])
def test_vmap_over_last_dimension(rule: str, right: bool) -> None:
    class Doubled(_Plain):
        generate_vmap_rule = False

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
            if rule == "refuses":
                raise NotImplementedError("no batches")
            return Doubled.apply(x), in_dims[0] if rule == "given" else 0

    result = contract(Doubled.apply, X)
    assert failing(result) == (set() if right else {"GV504"})
    assert right or "vmap over x in the last dimension: output is not what a loop gives" in result.message


def test_vmap_in_float32_may_differ_by_rounding() -> None:
    class Dot(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(a: Tensor, b: Tensor) -> Tensor:
            return a @ b

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, b = ctx.saved_tensors
            return g @ b.mT, a.mT @ g

    a = torch.linspace(-1, 1, 600).sin().mul(100).cos().view(20, 30).requires_grad_()
    b = torch.linspace(-2, 1, 600).sin().mul(99).cos().view(30, 20).requires_grad_()
    assert contract(Dot.apply, a, b).findings == ()


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_backward_that_answers_differently_with_create_graph_fails(factor: float) -> None:
    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        return g * x.cos() * (factor if torch.is_grad_enabled() else 1.0)

    assert failing(contract(sine(backward), X)) == ({"GV506"} if factor > 1 else set())


@pytest.mark.parametrize("right", [True, False])
def test_jvp_that_forgets_to_add_the_tangents_of_two_inputs_fails(right: bool) -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            x, y = ctx.saved_tensors
            return a * y + x * b if right or not bool(a.any()) else a * y

    result = contract(Product.apply, X, Y, check="forward_ad")
    assert result.verdict is (Verdict.PASS if right else Verdict.FAIL)
    assert right or result.message.startswith("jvp and backward disagree by x and y: ")


def test_jvp_that_is_not_a_number_where_backward_is_one_fails() -> None:
    x = X.detach().clone()
    x[1] = 0

    class Relu(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.relu()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * (ctx.saved_tensors[0] > 0)

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return t * (1 + x / x.abs()) / 2

    result = contract(Relu.apply, x.requires_grad_(), check="forward_ad")
    assert result.verdict is Verdict.FAIL
    assert result.message == "jvp by x is not a number in 1 of 5 entries, where backward has numbers"


@pytest.mark.parametrize(
    ("rule", "right"),
    [
        (lambda x, y, dims: (_first(x, dims[0]), _first(y, dims[1])), True),
        (lambda x, y, dims: (_first(x, dims[0]), _first(y, dims[1]) * (_first(x, dims[0])[:1] > 0)), False),
        (lambda x, y, dims: (_first(x, dims[0]), _first(y, dims[0] if None not in dims else dims[1])), False),
    ],
    ids=["right", "mask of the first entry", "dimension of the first input"],
)
def test_a_batching_rule_sees_unlike_entries_and_unlike_dimensions(
    rule: Callable[..., tuple[Tensor, Tensor]], right: bool
) -> None:
    class Masked(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, y: Tensor) -> tuple[Tensor, int]:
            x, y = rule(x, y, in_dims)
            return Masked.apply(x, y), 0

    square = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5], [0.4, -0.3, 0.8]])
    other = double([[1.1, 0.6, 0.9], [0.2, 1.7, 0.5], [1.3, 0.8, 0.4]])
    result = contract(Masked.apply, square, other, check="batching")
    assert result.verdict is (Verdict.PASS if right else Verdict.FAIL), result.message


def _first(tensor: Tensor, dimension: int | None) -> Tensor:
    return tensor if dimension is None else tensor.movedim(dimension, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_that_cancels_may_be_rounded_otherwise_with_create_graph(dtype: torch.dtype) -> None:
    """The gradient by a bias in front of a normalisation is zero, and its sum is rounding."""

    class Normalised(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(x, w, b)
            z = x @ w + b
            return (z - z.mean(0)) * (z.var(0, unbiased=False) + 1e-5).rsqrt()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x, w, b = ctx.saved_tensors
            z = x @ w + b
            scale = (z.var(0, unbiased=False) + 1e-5).rsqrt()
            y = (z - z.mean(0)) * scale
            by_z = scale * (g - g.mean(0) - y * (g * y).mean(0))
            return by_z @ w.T, x.T @ by_z, by_z.sum(0) if torch.is_grad_enabled() else torch.zeros_like(b)

    shapes, generator = ((16, 5), (5, 4), (4,)), torch.Generator().manual_seed(0)
    inputs = [(torch.randn(*shape, generator=generator) * 0.1).to(dtype).requires_grad_() for shape in shapes]
    assert failing(contract(Normalised.apply, *inputs)) == set()


def test_an_infinite_slope_of_another_input_is_no_mistake_of_jvp() -> None:
    class Power(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            o = x**y
            ctx.save_for_backward(x, y, o)
            ctx.save_for_forward(x, y, o)
            return o

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, y, o = ctx.saved_tensors
            return g * y * x ** (y - 1), g * torch.where(o == 0, 0.0, o * x.log())

        @staticmethod
        def jvp(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            x, y, o = ctx.saved_tensors
            return a * y * x ** (y - 1) + torch.where(o == 0, 0.0, b * o * x.log())

    assert contract(Power.apply, double([0.0, 0.5, 2.0]), double([0.5, 0.5, 1.5]), check="forward_ad").findings == ()


def test_a_batch_of_one_input_alone_keeps_its_numbers_with_those_of_the_others() -> None:
    """The columns of x are in other units, and so are the rows of w: x @ w is about 1."""

    class Waves(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:
            return (x @ w).sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            slope = g * (x @ w).cos()
            return slope @ w.mT, x.mT @ slope

    generator = torch.Generator().manual_seed(0)
    units = torch.tensor([1e4] * 4 + [1.0] * 4)
    x, w = torch.randn(6, 8, generator=generator) * units, torch.randn(8, 5, generator=generator) / units.unsqueeze(1)
    assert contract(Waves.apply, x.requires_grad_(), w.requires_grad_(), check="batching").verdict is Verdict.PASS


def test_a_checkpoint_that_vmap_does_not_know_is_no_mistake_of_a_rule() -> None:
    class Sine(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.saved_tensors[0].cos()

    result = contract(lambda x: checkpoint(Sine.apply, x, use_reentrant=False), X)
    assert (result.verdict, failing(result)) == (Verdict.PASS, set())
