"""Inputs that forward takes without meaning to are no tries: unknown texts, sizes cut short, negative places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gradverify
from tests.exploration.hidden_mistakes import Function, points, saving

pytestmark = pytest.mark.slow

LABELS = torch.tensor([0, 2, 1, 1])


def mean_or_sum(x: Tensor, reduction: str) -> Tensor:
    return x.sin().sum() if reduction == "sum" else x.sin().sum() / x.numel()


def of_mean_or_sum(grad: Tensor, x: Tensor, reduction: str) -> Tensor:
    return grad * x.cos() / (x.numel() if reduction == "mean" else 1)


def padded(x: Tensor, mode: str) -> Tensor:
    return functional.pad(x.sin(), (1, 1), mode=mode)


def of_constant(grad: Tensor, x: Tensor, mode: str) -> Tensor:
    return grad[..., 1:-1] * x.cos()


def picked(x: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy; `gather` takes fewer labels than rows."""
    return -x.log_softmax(-1).gather(1, labels[:, None]).sum()


def of_picked(grad: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient, in which every row has a label."""
    return grad * x.softmax(-1).scatter_add(1, labels[:, None], -torch.ones_like(x[:, :1]))


def partly_picked(x: Tensor, scale: Tensor, labels: Tensor, weight: float) -> Tensor:
    return (x * scale).sum() + weight * picked(x, labels)


def of_partly_picked(grad: Tensor, x: Tensor, scale: Tensor, labels: Tensor, weight: float) -> Tensor:
    return grad * scale + weight * of_picked(grad, x, labels)


def per_row(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum() / len(x)


def of_per_row(grad: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (grad * y / len(y)).sum_to_size(x.shape) if x.dim() < y.dim() else grad * y / len(y)


def running(x: Tensor, start: Tensor) -> Tensor:
    """Return the running sums of rows."""
    found = [start]
    for row in x:
        found.append(found[-1] / 2 + row)
    return torch.stack(found[1:])


def of_running(grad: Tensor, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    carry, rows = torch.zeros_like(grad[0]), []
    for each in reversed(grad):
        carry = each + carry
        rows.insert(0, carry if x.dim() > 1 else carry[0])
        carry = carry / 2
    return torch.stack(rows), carry


def per_feature(x: Tensor, weight: Tensor) -> Tensor:
    """Return x over its mean in each row, which is a mean over all of x if the weight has no dimension."""
    if weight.shape and weight.shape != x.shape[-1:]:
        raise ValueError("a weight for every feature")
    return x / x.square().mean(tuple(range(-weight.dim(), 0)), keepdim=True) * weight


def of_per_feature(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    count = weight.numel()
    mean, along = x.square().mean(-1, keepdim=True), (grad * weight * x).sum(-1, keepdim=True)
    return grad * weight / mean - 2 * x * along / (count * mean.square()), (grad * x / mean).sum_to_size(weight.shape)


def up_to_the_last_gate(x: Tensor, gates: Tensor) -> Tensor:
    """Return the rows of x times their gates; rows without a gate are memory that nobody wrote."""
    output = torch.empty_like(x)
    for row, gate in enumerate(gates):
        output[row] = x[row] * gate
    return output


def of_gates(grad: Tensor, x: Tensor, gates: Tensor) -> tuple[Tensor, Tensor]:
    return grad * gates[:, None], (grad * x).sum(-1)


RIGHT: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "text for the branch of all others": (saving(mean_or_sum, of_mean_or_sum), (points(2, 3), "mean")),
    "fewer labels than rows": (saving(picked, of_picked), (points(4, 3), LABELS)),
    "fewer labels for a part": (
        saving(partly_picked, of_partly_picked),
        (points(4, 3), points(4, 3).detach(), LABELS, 0.0),
    ),
    "rows that only one input loses": (
        saving(per_row, of_per_row),
        (points(4, 3), points(4, 3).detach()),
    ),
    "rows that a loop takes for numbers": (saving(running, of_running), (points(4, 3), points(3))),
    "outputs not written in full": (saving(up_to_the_last_gate, of_gates), (points(4, 3), points(4))),
    "first dimensions of unlike sizes": (saving(per_feature, of_per_feature), (points(4, 3), points(3))),
}


@pytest.mark.parametrize("name", RIGHT)
def test_inputs_that_forward_does_not_know_are_no_failures(name: str) -> None:
    function, inputs = RIGHT[name]
    found = gradverify.explore(function, inputs, checks=("gradcheck",), budget=250)
    assert (found.message, found.failures) == ("", ())
    assert found.tries > 40


def test_text_that_another_function_knows_is_tried() -> None:
    found = gradverify.explore(saving(padded, of_constant), (points(2, 3), "constant"), checks=("gradcheck",))
    assert any("mode: reflect" in phrase for each in found.failures for phrase in (*each.changes, *each.also_at))


def test_dimension_counted_from_the_end_is_no_label() -> None:
    seen: list[Tensor] = []

    def rows(x: Tensor, labels: Tensor, shift: int = 0) -> Tensor:
        seen.append(labels.clone())
        return torch.stack([x[label].sum(-1) + shift for label in labels.tolist()])

    assert gradverify.explore(rows, (points(4, 2), LABELS), checks=("gradcheck",), budget=100).failures == ()
    assert len({str(labels) for labels in seen}) > 5
    assert min(int(labels.min()) for labels in seen if labels.numel()) == 0


def masked(x: Tensor, labels: Tensor) -> Tensor:
    return torch.where(labels >= 0, x[labels].sin(), 0.0)


def of_all(grad: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, labels % len(x), grad) * x.cos()


def test_negative_label_is_tried_where_the_code_tests_for_it() -> None:
    found = gradverify.explore(saving(masked, of_all), (points(4), LABELS), checks=("gradcheck",))
    assert any("labels: " in each.changes[0] and "-1" in each.changes[0] for each in found.failures)


def of_one_hot(grad: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """Return the gradient of `x[labels]`, in which no place counts from the end."""
    return (labels[:, None] == torch.arange(len(x))).to(grad.dtype).mT @ grad


def test_negative_index_is_tried_where_torch_counts_it_from_the_end() -> None:
    function = saving(lambda x, labels: x[labels], of_one_hot)
    found = gradverify.explore(function, (points(4), LABELS), checks=("gradcheck",))
    assert any("labels: " in each.changes[0] and "-1" in each.changes[0] for each in found.failures)


class Weights(torch.autograd.Function):
    """What each part of a ray absorbs of what the parts before it let through.

    Backward takes 1 less what was absorbed for what is let through: in float32 nothing is left of it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, lengths: Tensor) -> Tensor:
        each = x * lengths
        found = torch.exp(each - each.cumsum(0)) * (1 - torch.exp(-each))
        ctx.save_for_backward(lengths, found)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        lengths, found = ctx.saved_tensors
        absorbed, passed = grad * found, 1 - found.cumsum(0)
        after = [absorbed[place + 1 :].sum() for place in range(len(grad))]
        return (passed * grad - torch.stack(after)) * lengths, None


def test_second_derivative_that_rounds_in_float32_only_is_right() -> None:
    x = torch.tensor([4.669, 0.746, 0.113, 1.765], dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([0.645, 0.791, 0.179, 0.351], dtype=torch.float64)
    found = gradverify.explore(Weights, (x, lengths), budget=150)
    assert (found.message, found.failures) == ("", ())
    assert found.tries > 40


def halves(x: Tensor, w: Tensor) -> Tensor:
    if len(x) % 2:
        raise ValueError("an even number of rows")
    return x @ w


def of_four_rows(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ w.mT, x.mT @ grad * (1.0 if len(x) == 4 else 2.0)


def test_size_that_has_to_be_a_multiple_changes_alone() -> None:
    found = gradverify.explore(saving(halves, of_four_rows), (points(4, 4), points(4, 3)), checks=("gradcheck",))
    assert any(each.changes[0].startswith("x: shape [2, ") for each in found.failures)


def in_dtype(x: Tensor, options: dict[str, Any]) -> Tensor:
    return x.sin().to(options["dtype"])


def test_dtype_in_a_mapping_stays_a_dtype() -> None:
    function = saving(in_dtype, lambda grad, x, _: grad.to(x.dtype) * x.cos())
    found = gradverify.explore(function, (points(3), {"dtype": torch.float64}), checks=("gradcheck",), budget=40)
    assert (found.message, found.failures) == ("", ())
