"""GV301–GV308, GV403: linearity, and the memory of cotangents and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from tests.checks.contract.support import X, Y, contract, failing, pair, sine
from tests.core.support import ALONE, double, problem_of

M = double([[0.3, -1.2, 0.7], [2.1, -0.4, 1.5]])
C = double([[[0.3, -1.2, 0.7], [2.1, -0.4, 0.9]], [[0.1, 0.8, -0.6], [1.3, -0.2, 0.5]]])


def _mul_(g: Tensor, x: Tensor) -> Tensor:
    return g.mul_(x.cos())


def _as_if_contiguous(g: Tensor, x: Tensor) -> Tensor:
    return torch.as_strided(g, g.shape, x.stride()) * x.cos()


def _reads_storage(g: Tensor, x: Tensor) -> Tensor:
    flat = torch.empty(0, dtype=g.dtype).set_(
        g.untyped_storage(), 0, (min(x.numel(), g.untyped_storage().nbytes() // 8),)
    )
    return (flat if flat.numel() == x.numel() else flat.expand(x.numel())).reshape(x.shape) * x.cos()


@pytest.mark.parametrize(
    ("code", "backward"),
    [
        ("GV303", lambda ctx, x, g: x.cos() * g**2),
        ("GV303", lambda ctx, x, g: x.cos() * g.abs()),
        ("GV304", lambda ctx, x, g: x.cos() * g.sign()),
        ("GV304", lambda ctx, x, g: x.cos() * g.clamp(-1, 1)),
        ("GV304", lambda ctx, x, g: x.cos() * g / g.norm()),
        ("GV302", lambda ctx, x, g: torch.where(x > 0, x.cos() * g, -0.5)),
        ("GV302", lambda ctx, x, g: x.cos() * g + 1e-6),
        ("GV301", lambda ctx, x, g: x.cos() * torch.where(g.roll(1).abs() < g.abs(), g, 1.001 * g)),
        ("GV301", lambda ctx, x, g: torch.zeros_like(g) if (g == g.reshape(-1)[0]).all() else x.cos() * g),
        ("GV306", lambda ctx, x, g: _mul_(g, x)),
        ("GV306", lambda ctx, x, g: g.data.mul_(x.cos())),
        ("GV307", lambda ctx, x, g: _as_if_contiguous(g, x)),
        ("GV307", lambda ctx, x, g: _reads_storage(g, x)),
    ],
)
@pytest.mark.parametrize("point", [X, M], ids=["vector", "matrix"])
def test_wrong_backward_with_one_output_fails_with_code(code: str, backward: Callable[..., Any], point: Tensor) -> None:
    result = contract(sine(backward), point)
    assert code in failing(result), result.findings
    assert result.evaluations.backward < 150


@pytest.mark.parametrize(
    ("code", "backward"),
    [
        ("GV305", lambda ctx, x, y, g, h: (y * g + h + g * h, x * g + h)),
        ("GV305", lambda ctx, x, y, g, h: (y * g if bool((g != 0).any()) else h, x * g + h)),
        ("GV303", lambda ctx, x, y, g, h: (y * g**2 + h, x * g + h)),
    ],
)
def test_wrong_backward_with_two_outputs_fails_with_code(code: str, backward: Callable[..., Any]) -> None:
    assert failing(contract(pair(backward), X, Y)) == {code}


def test_view_of_noncontiguous_cotangent_is_reported_as_layout() -> None:
    result = contract(sine(lambda ctx, x, g: (g.view(-1) * x.view(-1).cos()).view(x.shape)), M)
    assert failing(result) == {"GV307", "GV403"}
    assert "view size is not compatible" in next(f.message for f in result.findings if f.code == "GV307")


def _as_laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    return torch.as_strided(tensor, like.shape, like.stride())


@pytest.mark.parametrize("point", [X, M], ids=["vector", "matrix"])
@pytest.mark.parametrize(
    ("codes", "backward"),
    [
        ({"GV403"}, lambda ctx, x, y, g, h: (_as_laid_out(y, x) * g + h, x * g + h)),
        ({"GV403"}, lambda ctx, x, y, g, h: (y * g + h, _as_laid_out(x, y) * g + h)),
        ({"GV307"}, lambda ctx, x, y, g, h: (y * g + _as_laid_out(h, g), x * g + h)),
        ({"GV307"}, lambda ctx, x, y, g, h: (y * _as_laid_out(g, h) + h, x * g + h)),
        (set(), lambda ctx, x, y, g, h: (y * g + h, x * g + h)),
    ],
)
def test_strides_of_another_tensor_are_found(codes: set[str], backward: Callable[..., Any], point: Tensor) -> None:
    assert failing(contract(pair(backward), point, double((point.detach() + 1).tolist()))) == codes


def _with_packed_rows(tensor: Tensor) -> Tensor:
    """Read the tensor as a kernel does that asks for the stride of the last dimension alone."""
    if tensor.stride(-1) != 1:
        return tensor
    packed = torch.empty(tensor.shape).stride()
    return torch.as_strided(tensor, tensor.shape, packed)


@pytest.mark.parametrize("point", [M, C], ids=["matrix", "three dimensions"])
@pytest.mark.parametrize(
    ("codes", "backward"),
    [
        ({"GV307"}, lambda ctx, x, g: _with_packed_rows(g) * x.cos()),
        ({"GV403"}, lambda ctx, x, g: g * _with_packed_rows(x).cos()),
        ({"GV307"}, lambda ctx, x, g: x.cos() if not any(g.stride()) else g * x.cos()),  # as of .sum(), not .mean()
        ({"GV307"}, lambda ctx, x, g: 0 * x if 0 in g.stride() and any(g.stride()) else g * x.cos()),
        (set(), lambda ctx, x, g: _with_packed_rows(g.contiguous()) * _with_packed_rows(x.contiguous()).cos()),
    ],
)
def test_strides_between_rows_are_found(codes: set[str], backward: Callable[..., Any], point: Tensor) -> None:
    assert failing(contract(sine(backward), point)) == codes


def test_heads_and_positions_exchanged_in_memory_are_found() -> None:
    """Rows are dense and lie without gaps, in another order than that of their indices."""

    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        no_gaps = sorted(g.stride()) == sorted(torch.empty(g.shape).stride())
        return (_with_packed_rows(g) if no_gaps else g) * x.cos()

    assert failing(contract(sine(backward), C)) == {"GV307"}


def test_conjugate_bit_of_cotangent_ignored_fails() -> None:
    def backward(ctx: Any, x: Tensor, g: Tensor) -> Tensor:
        physical = g.conj() if g.is_conj() else g
        return physical * x.cos().conj()

    point = torch.tensor([0.3 + 1j, -0.2 + 0.1j], requires_grad=True, dtype=torch.complex128)
    assert failing(contract(sine(backward), point)) == {"GV307"}


def test_undefined_cotangents_must_count_as_zero() -> None:
    crashing = pair(lambda ctx, x, y, g, h: (y * g + h, x * g + h), materialize=False)
    result = contract(crashing, X, Y)
    assert failing(result) == {"GV308"}
    assert len([finding for finding in result.findings if finding.code == "GV308"]) == 3

    def forgetful(ctx: Any, x: Tensor, y: Tensor, g: Tensor | None, h: Tensor | None) -> Any:
        return (None, None) if g is None or h is None else (y * g + h, x * g + h)

    assert failing(contract(pair(forgetful, materialize=False), X, Y)) == {"GV308"}


@pytest.mark.parametrize(
    "backward",
    [
        lambda ctx, x, g: x.cos() * g,
        lambda ctx, x, g: (g.contiguous().view(-1) * x.contiguous().view(-1).cos()).view(x.shape),
        lambda ctx, x, g: (g.reshape(-1) * x.reshape(-1).cos()).reshape(x.shape),
        lambda ctx, x, g: g.clone().mul_(x.cos()),
        lambda ctx, x, g: x.cos() * g * 1e-30,
        lambda ctx, x, g: torch.einsum("...,...->...", x.cos(), g),
    ],
)
@pytest.mark.parametrize("point", [X, M], ids=["vector", "matrix"])
def test_right_backward_has_no_finding(backward: Callable[..., Any], point: Tensor) -> None:
    result = contract(sine(backward), point)
    assert result.findings == ()


def test_none_cotangent_counted_as_zero_passes() -> None:
    def backward(ctx: Any, x: Tensor, y: Tensor, g: Tensor | None, h: Tensor | None) -> Any:
        by_x = 0.0 if g is None else y * g
        by_y = 0.0 if g is None else x * g
        if h is None:
            return (None, None) if g is None else (by_x, by_y)
        return by_x + h, by_y + h

    assert contract(pair(backward, materialize=False), X, Y).findings == ()


def test_backward_zero_if_any_cotangent_is_zero_is_not_linear() -> None:
    result = contract(sine(lambda ctx, x, g: g * x.cos() * (g != 0).all()), X)
    assert failing(result) == {"GV301"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_overflow_of_mixed_cotangents_is_not_a_lack_of_linearity(dtype: torch.dtype) -> None:
    """At ln of the largest number, e^x holds, and 2 e^x does not."""
    largest = torch.tensor(torch.finfo(dtype).max, dtype=torch.float64).log().to(dtype) * 0.995
    x = torch.stack([largest, largest * 0.99]).requires_grad_()

    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(y := x.exp())
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0]

    for seed in range(4):
        assert "GV301" not in failing(run_check("contract", problem_of(Exp.apply, x), replace(ALONE, seed=seed)))


@pytest.mark.parametrize("reads_one", [True, False])
def test_a_cotangent_that_is_expanded_in_its_last_dimension(reads_one: bool) -> None:
    def backward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
        same = grad.stride(-1) == 0
        return (grad.flatten()[0] if same and reads_one else grad) * x.cos()

    result = contract(sine(backward), torch.randn(3, 4, dtype=torch.float64, requires_grad=True))
    assert failing(result) == ({"GV307"} if reads_one else set())
