"""Detected sparsity is a hypothesis: it is used if it holds, dropped if a test contradicts it, and causes no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.core.model import memory
from gradverify.core.strategy import compressed_vjps, sparse_comparison
from gradverify.result import CheckResult, Method, Verdict
from tests.core.support import gradcheck, gradgradcheck


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype).requires_grad_()


def planted(forward: Callable[..., Tensor], change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a Function of one input whose gradient is `change` of the right one."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                (right,) = torch.autograd.grad(forward(leaf), leaf, grad)
            return change(right)

    return Planted.apply


STRUCTURED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise": (torch.sin, ((200,),)),
    "elementwise square": (torch.tanh, ((12, 12),)),
    "relu": (torch.relu, ((15, 20),)),
    "layer norm": (lambda x: functional.layer_norm(x, (4,)), ((30, 4),)),
    "softmax": (lambda x: x.softmax(0), ((4, 30),)),
    "matmul": (torch.matmul, ((9, 8), (8, 7))),
    "convolution": (functional.conv2d, ((1, 2, 9, 9), (2, 2, 3, 3))),
    "strided convolution": (lambda x: functional.conv1d(x, torch.ones(1, 1, 3).double(), stride=2), ((1, 1, 51),)),
    "pooling": (lambda x: functional.avg_pool1d(x, 2), ((2, 1, 20),)),
    "broadcast": (lambda x, y: x * y, ((20, 3), (3,))),
    "rows": (lambda x: (x * x).sum(1), ((20, 3),)),
    "two outputs": (lambda x: (x.sin(), x.exp().sum(1)), ((20, 3),)),
    "complex": (lambda x: x * x.conj() * x, ((20,),)),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_sparse_jacobian_is_compared_by_structure(name: str) -> None:
    function, shapes = STRUCTURED[name]
    dtype = torch.complex128 if name == "complex" else torch.float64
    result = gradcheck(function, *(drawn(*shape, dtype=dtype) for shape in shapes))
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)


@pytest.mark.parametrize("name", ["elementwise", "layer norm", "softmax"])
@pytest.mark.parametrize("place", [0, 7, -1])
def test_wrong_element_is_found_at_its_index(name: str, place: int) -> None:
    function, (shape,) = STRUCTURED[name]

    def change(grad: Tensor) -> Tensor:
        wrong = grad.reshape(-1).clone()
        wrong[place] *= 1 + 1e-5
        return wrong.reshape(grad.shape)

    result = gradcheck(planted(function, change), drawn(*shape))
    assert result.verdict is Verdict.FAIL
    size = torch.Size(shape).numel()
    assert positions(result, shape) == {place % size}


def _by_column(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.parametrize("rows", [64, 200])
@pytest.mark.parametrize("place", [None, 5])
def test_small_problem_is_compared_by_structure_after_sums_agree(
    rows: int, place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_comparison, "seconds", lambda sampled: 1e-5)  # however busy the machine is

    def change(right: Tensor) -> Tensor:
        wrong = right.clone()
        if place is not None:
            wrong[place, 3] *= 1 + 2e-6
        return wrong

    result = gradcheck(planted(_by_column, change), drawn(rows, 32))
    if place is None:
        assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)
        assert result.detection_limit is not None and result.detection_limit < 1e-6
    else:
        assert result.verdict is Verdict.FAIL
    assert {element.input_index for found in result.findings for element in found.elements} <= {(place, 3)}


def test_no_comparison_by_structure_after_sums_differ() -> None:
    result = gradcheck(planted(_by_column, lambda right: 1.0001 * right), drawn(200, 32))
    assert (result.verdict, result.method) == (Verdict.FAIL, Method.PROBED)
    assert result.evaluations.forward < 2_000


def test_slow_forward_is_compared_by_sums_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_comparison, "seconds", lambda sampled: 0.03)
    assert gradcheck(_by_column, drawn(200, 32)).method is Method.PROBED


def test_many_large_column_groups_are_compared_by_sums_only() -> None:
    assert gradcheck(_by_column, drawn(1000, 32)).method is Method.PROBED


@pytest.mark.parametrize("leak", [1.0, 1e-3, 1e-5])
def test_stray_entry_in_backward_is_found(leak: float) -> None:
    def change(grad: Tensor) -> Tensor:
        wrong = grad.clone()
        wrong[7] += leak * grad[60]
        return wrong

    result = gradcheck(planted(torch.exp, change), drawn(100))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    element = result.findings[0].elements[0]
    assert (element.output_index, element.input_index) == ((60,), (7,))


@pytest.mark.parametrize("index", [3, 77])
def test_right_gradient_of_almost_elementwise_function_passes(index: int) -> None:
    def mixing(x: Tensor) -> Tensor:
        result = x.sin()
        return torch.cat([result[:index], (x[index] * x[0]).reshape(1), result[index + 1 :]])

    assert gradcheck(mixing, drawn(120)).verdict is Verdict.PASS


def test_missing_off_diagonal_entry_is_found() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x * x
            result[77] = x[77] * x[0]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            right = 2 * x * grad
            right[77] = x[0] * grad[77]
            return right  # lacks d out[77] / d x[0]

    result = gradcheck(Forgets.apply, drawn(120))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    element = result.findings[0].elements[0]
    assert (element.output_index, element.input_index) == ((77,), (0,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(0),
        lambda x: x.cumsum(0),
        lambda x: x[torch.arange(40).roll(3)],
        lambda x: torch.cat([x, x * 2]),
        lambda x: x.sort().values,
        lambda x: x[:1] * x,
        lambda x: x.reshape(5, 8).T.reshape(-1).sin(),
        lambda x: x - x.mean(),
        lambda x: torch.where(x > x.median(), x, x * x),
    ],
)
def test_misleading_structure_changes_no_verdict(function: Callable[..., Any]) -> None:
    assert gradcheck(function, drawn(40)).verdict is Verdict.PASS
    assert gradcheck(planted(function, lambda grad: grad * 1.0001), drawn(40)).verdict is Verdict.FAIL


@pytest.mark.parametrize("size", [20, 40, 200])
def test_kink_does_not_hide_missing_entry(size: int) -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x.clamp(min=0)
            result[size // 2] -= 1e-2 * x[size // 3]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * (ctx.saved_tensors[0] > 0)

    x = drawn(size).detach()
    x[size // 2] = 0.0
    result = gradcheck(Forgets.apply, x.requires_grad_())
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.slow
def test_kink_in_dense_row_does_not_hide_missing_entry() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x.clamp(min=0) + 1e-3 * x.sum(1, keepdim=True)
            result[40, 0] -= 1e-2 * x[11, 0]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * (x > 0) + 1e-3 * grad.sum(1, keepdim=True)

    x = drawn(60, 4).detach()
    x[torch.rand(60, 4, generator=torch.Generator().manual_seed(2)) < 0.5] = 0.0
    x[40, 0] = x[11, 0] = 0.0
    result = gradcheck(Forgets.apply, x.requires_grad_())
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_stray_entry_in_small_row_is_found_beside_large_rows() -> None:
    def change(grad: Tensor) -> Tensor:
        wrong = grad.clone()
        wrong[39] += 1e-3 * grad[0]
        return wrong

    x = torch.linspace(-10, 10, 40, dtype=torch.float64).requires_grad_()
    assert gradcheck(planted(torch.exp, change), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("function", [torch.nn.functional.hardtanh, lambda x: x.reshape(12, 5).amax(1)])
def test_order_2_at_many_kinks_passes(function: Callable[..., Any]) -> None:
    x = torch.arange(-30, 30).remainder(5).sub(2).double().requires_grad_()
    assert gradgradcheck(function, x).verdict is Verdict.PASS


def test_overlapping_memory_layouts_pass() -> None:
    unfolded = drawn(20).detach().unfold(0, 3, 1).requires_grad_()
    expanded = drawn(1, 3).detach().expand(6, 3).requires_grad_()
    assert gradcheck(torch.sin, unfolded).verdict is Verdict.PASS
    assert gradcheck(torch.sin, expanded).verdict is Verdict.PASS


def test_order_2_is_compared_by_structure() -> None:
    result = gradgradcheck(torch.sin, drawn(60))
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)


def test_cost_of_elementwise_function_does_not_grow_with_its_size() -> None:
    small, large = (gradcheck(torch.exp, drawn(size)) for size in (100, 20_000))
    assert large.entries == 20_000**2
    assert large.evaluations.forward <= 2 * small.evaluations.forward
    assert large.evaluations.backward == small.evaluations.backward


def positions(result: CheckResult, shape: tuple[int, ...]) -> set[int]:
    """Return the flat positions of the inputs with mismatches."""
    found = set()
    for finding in result.findings:
        for element in finding.elements:
            place = 0
            for index, size in zip(element.input_index, shape, strict=True):
                place = place * size + index
            found.add(place)
    return found


@pytest.mark.parametrize("held", [200, 1_000, 5_000])
def test_claims_do_not_depend_on_number_of_cotangents_per_call(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def both(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return functional.conv2d(x, w, padding=1), (x * x).sum(1)

    x, w = drawn(2, 2, 6, 6), drawn(3, 2, 3, 3)
    whole = gradcheck(both, x, w)
    monkeypatch.setattr(compressed_vjps, "_HELD", held)
    in_chunks = gradcheck(both, x, w)
    assert (in_chunks.verdict, in_chunks.entries, in_chunks.method) == (Verdict.PASS, whole.entries, whole.method)
    assert in_chunks.max_error == pytest.approx(whole.max_error, abs=1e-12)
    assert in_chunks.evaluations.backward > whole.evaluations.backward


def test_empty_input_is_left_out_of_structure() -> None:
    def beside(x: Tensor, nothing: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (x * b).tanh() + nothing.sum(), (b * b).sin()

    def product(x: Tensor, nothing: Tensor) -> Tensor:
        return x @ x + nothing.sum()

    for function, inputs in ((beside, (drawn(40, 5), drawn(0, 5), drawn(5))), (product, (drawn(54), drawn(0)))):
        found = [check(function, *inputs) for check in (gradcheck, gradgradcheck)]
        assert [result.verdict for result in found] == [Verdict.PASS, Verdict.PASS]


@pytest.mark.parametrize("held", [40_000, 2_000_000])
def test_vjps_for_single_inputs_give_the_same_comparison(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(x: Tensor, w: Tensor, nothing: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x @ w + b + nothing.sum(), x.sum(1)

    def checked() -> tuple[CheckResult, int]:
        result = gradcheck(product, drawn(30, 20), drawn(20, 25), drawn(0), drawn(25))
        return result, result.evaluations.backward

    monkeypatch.setattr(compressed_vjps, "_HELD", held)
    monkeypatch.setattr(compressed_vjps, "_APART", 10**9)
    together, calls_together = checked()
    monkeypatch.setattr(compressed_vjps, "_APART", 0)
    apart, calls_apart = checked()
    assert (together.verdict, apart.verdict) == (Verdict.PASS, Verdict.PASS)
    assert (apart.entries, apart.method) == (together.entries, Method.STRUCTURED)
    assert apart.max_error == pytest.approx(together.max_error, abs=1e-12)
    assert calls_apart > calls_together


@pytest.mark.parametrize("place", [0, 7, 599])
def test_error_is_found_with_vjps_for_single_inputs(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Product(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:
            return x @ w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            off = (torch.arange(x.numel()) == place).view_as(x) * 1e-6
            return (grad @ w.mT) * (1 + off), x.mT @ grad

    monkeypatch.setattr(compressed_vjps, "_APART", 0)
    result = gradcheck(Product.apply, drawn(30, 20), drawn(20, 25))
    assert (result.verdict, result.method) == (Verdict.FAIL, Method.STRUCTURED)
    assert positions(result, (30, 20)) == {place}


def test_vjps_for_single_inputs_are_dropped_if_they_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    original = torch.autograd.grad

    def falsified(outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        found = original(outputs, inputs, *args, **options)
        if len(inputs) == 1 and options.get("is_grads_batched"):
            calls.append(1)
            return tuple(grad * 1.01 for grad in found)
        return found

    monkeypatch.setattr(compressed_vjps, "_APART", 0)
    monkeypatch.setattr(torch.autograd, "grad", falsified)
    assert gradcheck(torch.matmul, drawn(30, 20), drawn(20, 25)).verdict is Verdict.PASS
    assert calls


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_partial_column_groups_can_be_sampled_in_chunks(
    check: Callable[..., CheckResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def transposed(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv_transpose2d(x, w, stride=2)

    x, w = drawn(2, 2, 6, 6), drawn(2, 3, 3, 3)
    whole = check(transposed, x, w)
    monkeypatch.setattr(memory, "HELD", 20_000)
    in_chunks = check(transposed, x, w)
    assert (in_chunks.verdict, in_chunks.method) == (Verdict.PASS, Method.STRUCTURED)
    assert in_chunks.evaluations.forward <= 1.5 * whole.evaluations.forward
