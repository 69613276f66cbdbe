"""Gradients in low precision: backward runs in its own dtype, the differences in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import batch_norm, dropout, gelu, layer_norm

from gradverify.core.decide.compare import EntryTolerance, in_doubt
from gradverify.core.decide.verdict import all_match
from gradverify.result import Verdict
from tests.core.support import claimed, gradcheck, gradgradcheck, normal, with_backward, with_scaled_gradient

LOW_PRECISION = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize(
    "function", [torch.sin, torch.exp, torch.sigmoid, lambda x: x.softmax(-1), lambda x: x.cumsum(0)]
)
def test_right_gradients_pass(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    for check in (gradcheck, gradgradcheck):
        result = check(function, normal(5, dtype=dtype))
        assert result.verdict is Verdict.PASS, result
        assert result.message.endswith("differences are those of the same numbers in float64")


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("slope", [lambda x: 1.5 * x.cos(), lambda x: -x.cos(), torch.zeros_like])
def test_wrong_gradients_fail(slope: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    point = torch.tensor([0.25, -0.5, 1.0, 2.0], dtype=dtype, requires_grad=True)
    result = gradcheck(claimed(torch.sin, slope), point)
    assert result.verdict is Verdict.FAIL
    assert result.mismatched == 4


def test_all_of_many_wrong_entries_are_reported() -> None:
    point = torch.linspace(0.1, 1.4, 300, dtype=torch.float32, requires_grad=True)
    result = gradcheck(claimed(torch.sin, lambda x: 1.5 * x.cos()), point)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 300)


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_large_right_jacobian_passes(dtype: torch.dtype) -> None:
    result = gradgradcheck(torch.sin, normal(1000, dtype=dtype))  # two million entries
    assert result.verdict is Verdict.PASS
    assert result.findings == ()


def sums(x: Tensor) -> Tensor:
    return x[:, 0] + x[:, 1] + x[:, 2]


@pytest.mark.parametrize(("factor", "verdict", "kinks"), [(1.0, Verdict.PASS, 3), (3.0, Verdict.FAIL, 0)])
def test_branch_that_depends_on_rounding_is_a_kink(factor: float, verdict: Verdict, kinks: int) -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        mask = (sums(x) > 0).to(grad.dtype) * grad
        return factor * mask.unsqueeze(1).expand_as(x)

    # in bfloat16 1 + 2^-9 rounds to 1: the first row's sum is zero there, and positive in float64
    point = torch.tensor([[1.0, 2.0**-9, -1.0], [1.0, 2.0, 0.5]], dtype=torch.bfloat16, requires_grad=True)
    result = gradcheck(with_backward(lambda x: sums(x).relu(), backward), point)
    assert result.verdict is verdict
    assert result.kinks == kinks


@pytest.mark.slow
def test_error_slightly_above_tolerance_is_no_kink() -> None:
    factor, weights = torch.linspace(1.0005, 1.0015, 200), normal(12, 200, dtype=torch.float32).detach()

    def slightly_wrong(grad: Tensor, x: Tensor) -> Tensor:
        return (weights.T @ grad) * x.exp() * factor

    function = with_backward(lambda x: weights.to(x.dtype) @ x.exp(), slightly_wrong)
    result = gradcheck(function, torch.linspace(1, 3, 200).requires_grad_())
    assert (result.verdict, result.kinks) == (Verdict.FAIL, 0)


def test_forward_that_rejects_float64_is_sampled_in_its_own_dtype() -> None:
    def float32_only(x: Tensor) -> Tensor:
        if x.dtype is torch.float64:
            raise TypeError("float32 only")
        return x.sin()

    result = gradcheck(claimed(float32_only, torch.cos), normal(5, dtype=torch.float32))
    assert result.verdict is Verdict.PASS
    assert "float64" not in result.message


def test_forward_that_differs_in_float64_is_sampled_in_its_own_dtype() -> None:
    def forward(x: Any) -> Tensor:
        return x.sin() if x.dtype is torch.float32 else 2 * x.sin()

    result = gradcheck(claimed(forward, torch.cos), normal(5, dtype=torch.float32))
    assert result.verdict is Verdict.PASS
    assert "float64" not in result.message


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("apart", [1.0, 0.3, 0.1, 0.03, 0.003, 0.0])
def test_norm_of_two_elements_does_not_fail_although_backward_is_mostly_rounding(
    dtype: torch.dtype, apart: float
) -> None:
    point = torch.tensor([[0.6, 0.6 + apart], [0.6 - apart, 0.6]], dtype=dtype, requires_grad=True)
    for norm in (lambda x: layer_norm(x, (2,)), lambda x: batch_norm(x.mT, None, None, training=True)):
        assert gradcheck(norm, point).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_norm_of_three_elements_with_a_wrong_factor_fails(dtype: torch.dtype) -> None:
    wrong = with_scaled_gradient(lambda x: layer_norm(x, (3,)), 1.5)
    assert gradcheck(wrong, normal(2, 3, dtype=dtype)).verdict is Verdict.FAIL


def test_scatter_of_a_backward_that_rejects_float64_is_undetermined() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        if x.dtype is torch.float64:
            raise TypeError("low precision only")
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            return torch.autograd.grad(layer_norm(point, (2,)), point, grad)[0]

    point = torch.tensor([[0.6, 0.7], [0.5, 0.6]], dtype=torch.bfloat16, requires_grad=True)
    result = gradcheck(with_backward(lambda x: layer_norm(x, (2,)), backward), point)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.undetermined == 8


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_threshold_in_the_wrong_place_fails(dtype: torch.dtype) -> None:
    function = claimed(torch.relu, lambda x: (x > 0.1).to(x.dtype))
    point = torch.tensor(
        [0.0996, 0.05, 0.7], dtype=dtype, requires_grad=True
    )  # the first is within two units of rounding of 0.1
    assert gradcheck(function, point).mismatched == 2


def test_forwards_that_differ_by_input_rounding_count_as_the_same() -> None:
    point = torch.tensor([[0.6], [0.6]], dtype=torch.bfloat16, requires_grad=True)
    result = gradcheck(lambda x: batch_norm(x, None, None, training=True), point)  # 0 in bfloat16, 4e-15 in float64
    assert result.message.endswith("differences are those of the same numbers in float64")
    other = gradcheck(lambda x: x.sin() if x.dtype is torch.float64 else x.cos(), point)
    assert not other.message.endswith("in float64")


SATURATED = {
    "a sigmoid": (torch.sigmoid, [16.5]),
    "tanh": (torch.tanh, [8.6, -8.7, 0.5]),
    "a softmax of two": (lambda x: x.softmax(-1), [[0.0, 12.0], [-9.0, 3.0]]),
    "columns of sigmoids": (lambda x: x.sigmoid().sum(0), [[14.0, -3.0], [15.5, 9.0]]),
}


@pytest.mark.parametrize("name", SATURATED)
def test_right_formula_that_loses_last_digits_passes(name: str) -> None:
    function, values = SATURATED[name]
    x = torch.tensor(values, dtype=torch.float32, requires_grad=True)
    assert gradcheck(function, x).verdict is Verdict.PASS


@pytest.mark.parametrize("name", SATURATED)
@pytest.mark.parametrize("factor", [1.01, 0.5, -1.0])
def test_wrong_formula_in_saturated_region_fails(name: str, factor: float) -> None:
    function, values = SATURATED[name]
    x = torch.tensor(values, dtype=torch.float32, requires_grad=True)
    assert gradcheck(with_scaled_gradient(function, factor), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_zero_claimed_only_in_low_precision_fails(dtype: torch.dtype) -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        slope = 3 * x * x
        return grad * (slope if x.dtype is torch.float64 else torch.zeros_like(slope))

    cube = with_backward(lambda x: x**3, backward)
    assert (
        gradcheck(cube, (normal(8, dtype=torch.float32).detach() / 100).to(dtype).requires_grad_()).verdict
        is Verdict.FAIL
    )


@pytest.mark.parametrize("size", [40, 2000])
def test_rounding_of_many_outputs_without_common_inputs_takes_few_vjps(size: int) -> None:
    """Their rows of the Jacobian are read from one vjp, so that the number of vjps does not grow with the outputs."""
    right = with_backward(torch.tanh, lambda grad, x: grad * (1 - x.tanh() ** 2))
    result = gradcheck(right, torch.linspace(-4, 4, size).bfloat16().requires_grad_())
    assert result.verdict is not Verdict.FAIL
    assert result.evaluations.backward <= 350


class Routed(torch.autograd.Function):
    """The largest weights of a softmax, which are then made to add up to 1: no other weight matters."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, count: int) -> Tensor:
        largest, places = logits.softmax(-1).topk(count, -1)
        ctx.save_for_backward(logits, places)
        return largest / largest.sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, places = ctx.saved_tensors
        weights = logits.softmax(-1)
        largest = weights.gather(-1, places)
        total = largest.sum(-1, keepdim=True)
        inner = (grad - (grad * largest / total).sum(-1, keepdim=True)) / total
        by_weights = torch.zeros_like(weights).scatter(-1, places, inner)
        return weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)), None


@pytest.mark.slow
def test_rounding_in_more_rows_than_are_examined_does_not_fail() -> None:
    logits = normal(33, 17, seed=1, dtype=torch.float32)
    result = gradcheck(lambda x: Routed.apply(x, 3), logits)
    assert (result.verdict is not Verdict.FAIL, result.mismatched) == (True, 0)


def gelu_by_erf(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_by_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(_cubic(x)))


def _cubic(x: Tensor) -> Tensor:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def slope_by_erf(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2)) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def slope_by_tanh(x: Tensor) -> Tensor:
    tanh = torch.tanh(_cubic(x))
    return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)


def uniform(size: int, largest: float, seed: int, dtype: torch.dtype) -> Tensor:
    drawn = torch.rand(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return ((2 * drawn - 1) * largest).to(dtype).requires_grad_()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("value", "slope"), [(gelu_by_erf, slope_by_erf), (gelu_by_tanh, slope_by_tanh)], ids=["erf", "tanh"]
)
def test_stairs_of_a_forward_that_rejects_float64_are_no_slope(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], seed: int
) -> None:
    # 1 + erf(x) moves in stairs of 6e-8 near -1, and x (1 + erf(x)) is smooth on each, with the slope 1 + erf(x).
    def only_float32(x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return value(x)

    point = uniform(40, 6.0, seed, torch.float32)
    assert gradcheck(claimed(only_float32, slope), point).verdict is not Verdict.FAIL
    result = gradcheck(claimed(only_float32, lambda x: torch.where(x > 1, 1.5, 1.0) * slope(x)), point)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, int((point > 1).sum()))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", LOW_PRECISION)
def test_fused_gelu_passes_in_its_tails(dtype: torch.dtype, approximate: str) -> None:
    point = uniform(40, 6.0, 0, dtype)
    assert gradcheck(lambda x: gelu(x, approximate=approximate), point).verdict is Verdict.PASS


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.3, Verdict.FAIL)])
def test_one_eps_that_is_left_where_terms_cancel_passes(factor: float, verdict: Verdict) -> None:
    # In bfloat16 1 + tanh is 0 from -3 on, where the derivative is -0.0081: a little more than one eps.
    point = torch.tensor([-3.125, 0.5, 1.5], dtype=torch.bfloat16, requires_grad=True)
    result = gradcheck(claimed(gelu_by_tanh, lambda x: factor * slope_by_tanh(x)), point)
    assert result.verdict is verdict


def test_forward_that_draws_other_numbers_in_float64_is_sampled_in_its_own_dtype() -> None:
    # Where the softmax saturates its outputs are the same whatever was drawn; its derivatives are not.
    class Gumbel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            found = ((x - (-torch.rand_like(x).log()).log()) / 0.1).softmax(-1)
            ctx.save_for_backward(found)
            return found

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Tensor:
            (found,) = ctx.saved_tensors
            weighted = cotangent * found
            return (weighted - found * weighted.sum(-1, keepdim=True)) / 0.1

    for seed in range(4):
        result = gradcheck(Gumbel.apply, normal(3, 4, scale=10.0, seed=seed, dtype=torch.float32))
        assert result.verdict is not Verdict.FAIL
        assert "float64" not in result.message


def test_undetermined_entries_of_low_precision_point_to_a_reference() -> None:
    def only_bfloat16(x: Tensor) -> Tensor:
        assert x.dtype == torch.bfloat16
        return 0.75 * x.exp()

    result = gradcheck(only_bfloat16, normal(12, dtype=torch.bfloat16))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "undetermined in bfloat16, where a `reference` shows more: " in result.findings[0].message


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.3, Verdict.FAIL)])
def test_dropout_that_draws_the_same_mask_in_float64_is_sampled_there(
    dtype: torch.dtype, factor: float, verdict: Verdict
) -> None:
    dropped = with_scaled_gradient(lambda x: dropout(x.sin(), 0.3), factor)
    result = gradcheck(dropped, normal(12, dtype=dtype))
    assert result.verdict is verdict
    assert "the same numbers in float64" in result.message


@pytest.mark.parametrize("factor", [0.5, 1.3, 2.0])
def test_quick_variation_of_a_forward_that_rejects_float64_is_no_stair(factor: float) -> None:
    def only_float32(x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return (20 * x).sin()

    for seed in range(4):
        wrong = claimed(only_float32, lambda x: 20 * factor * (20 * x).cos())
        assert gradcheck(wrong, normal(1, seed=seed, scale=2.0, dtype=torch.float32)).verdict is Verdict.FAIL


def test_output_that_is_mostly_rounding_in_float32_does_not_fail() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.special.i1e(x) / torch.special.i0e(x)

    function = with_backward(lambda x: torch.special.i0e(x).log() + x.abs(), backward)
    for seed in range(6):
        x = (1e-6 * normal(6, dtype=torch.float32, seed=seed).detach().abs()).requires_grad_()
        assert gradcheck(function, x).verdict is not Verdict.FAIL


def steep(x: Tensor) -> Tensor:
    return (1e5 * x.float()).tanh().to(x.dtype)


@pytest.mark.parametrize(("slope", "verdict"), [(1e5, Verdict.PASS), (-1e5, Verdict.FAIL), (1e3, Verdict.FAIL)])
def test_infinity_is_right_for_a_derivative_that_the_dtype_does_not_hold(slope: float, verdict: Verdict) -> None:
    x = torch.tensor([1e-6, 2e-6], dtype=torch.float16, requires_grad=True)
    assert gradcheck(with_backward(steep, lambda grad, x: (grad.float() * slope).to(x.dtype)), x).verdict is verdict


def test_infinity_is_wrong_for_a_derivative_that_the_dtype_holds() -> None:
    x = torch.tensor([0.5, 1.0], dtype=torch.float16, requires_grad=True)
    assert gradcheck(with_backward(torch.sin, lambda grad, x: grad * torch.inf), x).verdict is Verdict.FAIL


class Scores(torch.autograd.Function):
    """Attention in float32 inside; where one score dominates, two large numbers cancel in backward."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.float() @ k.float().mT
        total = scores.logsumexp(-1, keepdim=True)
        output = (scores - total).exp() @ v.float()
        ctx.save_for_backward(q, k, v, output, total)
        return output.to(q.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, output, total = (saved.float() for saved in ctx.saved_tensors)
        grad = grad.float()
        weights = (q @ k.mT - total).exp()
        of_scores = weights * (grad @ v.mT - (grad * output).sum(-1, keepdim=True))
        found = (of_scores @ k, of_scores.mT @ q, weights.mT @ grad)
        return tuple(each.to(saved.dtype) for each, saved in zip(found, ctx.saved_tensors[:3], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_casts_to_float32_inside_are_left_out_of_differences(dtype: torch.dtype) -> None:
    given = [normal(5, 4, seed=seed).detach().to(dtype).requires_grad_() for seed in range(3)]
    result = gradcheck(lambda *inputs: Scores.apply(*inputs), *given)
    assert result.verdict is Verdict.PASS
    assert result.message.endswith("differences are those of the same numbers in float64")


ONE_KEY = (
    [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]],
    [[-1230.0, 500.0, 1316.0, 895.0, 871.0, -173.0, 223.0]],
    [[-573.3, 698.76, -939.11, 102.08, 1724.14, 25.2, -915.96]],
)


@pytest.mark.parametrize("limit", [None, 1.0])
def test_sum_of_rows_that_rounding_explains_is_right_and_a_clipped_cotangent_is_not(limit: float | None) -> None:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        output = Scores.apply(q, k, v)
        if limit is not None:
            output.register_hook(lambda grad: grad * min(1.0, limit / float(grad.norm())) if grad.norm() else grad)
        return output

    inputs = [torch.tensor(values, requires_grad=True) for values in ONE_KEY]
    result = gradcheck(function, *inputs)
    assert [finding.code for finding in result.findings if finding.verdict is Verdict.FAIL] == (
        ["GV301"] if limit else []
    )


class MaskedInFloat32(torch.autograd.Function):
    """Softmax in float32 inside of one score for all columns: its gradient is a sum of rounded numbers that cancel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        y = x.float().masked_fill(~mask, -1e30).softmax(-1)
        ctx.save_for_backward(y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        of_y = grad.float()
        return (y * (of_y - (of_y * y).sum(-1, keepdim=True))).to(grad.dtype), None


def test_sum_in_float16_of_what_was_computed_in_float32_rounds_as_float16_does() -> None:
    mask = torch.tensor([[True, False, False, False, True, True, True, False, True, True, True, False]])
    x = torch.ones(1, 1, dtype=torch.float16, requires_grad=True)
    assert gradcheck(lambda x: MaskedInFloat32.apply(x, mask), x).verdict is not Verdict.FAIL


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.01, Verdict.FAIL)])
def test_backward_that_cancels_is_right_in_any_number_of_rows(factor: float, verdict: Verdict) -> None:
    weight = 0.01 * normal(200, 4).detach()

    def backward(grad: Tensor, _: Tensor) -> Tensor:
        shift = torch.full_like(weight, 100.0, dtype=grad.dtype)
        return factor * (grad @ (weight.to(grad.dtype) + shift) - grad @ shift)

    cancelling = with_backward(lambda x: weight.to(x.dtype) @ x, backward)
    assert gradcheck(cancelling, torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)).verdict is verdict


def test_doubt_about_an_entry_does_not_depend_on_those_beside_it() -> None:
    def doubted(*bars: float) -> list[bool]:
        bar = torch.tensor([bars], dtype=torch.float64)
        own = torch.ones_like(bar)
        judged = all_match(own, bar, torch.zeros_like(bar), torch.ones_like(bar))
        allowance = EntryTolerance(rtol=0.1, floor=0.0, row_column_size=own, scale=own, largest=own[0])
        found: list[bool] = in_doubt(judged, torch.zeros_like(own, dtype=torch.bool), own, allowance)[0].tolist()
        return found

    assert doubted(1e-5, 5e-3, 5e-2) == [False, True, True]
    assert doubted(1e-5, 5e-3) == [False, True]
