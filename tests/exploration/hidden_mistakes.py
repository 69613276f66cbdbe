"""Functions whose gradient is right at the inputs as written and wrong after one kind of change."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Function = type[torch.autograd.Function]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A wrong function, inputs that do not show it, and what has to be changed."""

    name: str
    function: Function
    inputs: tuple[Any, ...]
    change: str  # a part of a phrase that says what was changed


def saving(forward: Callable[..., Any], backward: Callable[..., Any]) -> Function:
    """Return a Function whose `backward(grad, *arguments)` gets the arguments of forward."""

    class Saving(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            ctx.save_for_backward(*(each for each in arguments if isinstance(each, Tensor)))
            ctx.arguments = arguments
            return forward(*arguments)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            saved = iter(ctx.saved_tensors)
            given = [next(saved) if isinstance(each, Tensor) else each for each in ctx.arguments]
            found = backward(grad, *given)
            found = found if isinstance(found, tuple) else (found,)
            return (*found, *([None] * (len(given) - len(found))))

    parameters = [*inspect.signature(Saving.forward).parameters.values()][:1]
    parameters += inspect.signature(forward).parameters.values()
    Saving.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Saving


def points(*shape: int, positive: bool = False) -> Tensor:
    """Return numbers between -1.3 and 1.7, none of them 0 or whole, or between 0.2 and 1.7."""
    count = torch.Size(shape).numel()
    low = 0.2 if positive else -1.3
    return torch.linspace(low, 1.7, count, dtype=torch.float64).reshape(shape).requires_grad_()


def reduced(x: Tensor, reduction: str) -> Tensor:
    known = {"mean": x.mean, "sum": x.sum, "none": x.clone}
    return known[reduction]()


def scattered(grad: Tensor, x: Tensor, index: Tensor) -> Tensor:
    """Return the gradient of `x[index]` as if no index came twice."""
    found = torch.zeros_like(x)
    found[index] = grad
    return found


def pooled(grad: Tensor, x: Tensor, size: int, stride: int) -> Tensor:
    """Return the gradient of a mean over windows as if no two windows overlapped."""
    found = torch.zeros_like(x)
    for number in range(grad.shape[-1]):
        found[..., number * stride : number * stride + size] = grad[..., number : number + 1] / size
    return found


def masked_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean of the rows that a mask leaves; it is a bool for every row."""
    if mask is None:
        return x.mean(1)
    if mask.dtype is not torch.bool or mask.shape != x.shape[:2]:
        raise ValueError("a mask of rows")
    return (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


def of_full_rows(grad: Tensor, x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the gradient of `masked_mean` as if no row were left out of the count."""
    kept = torch.ones_like(x) if mask is None else mask.unsqueeze(-1).expand(x.shape)
    return grad.unsqueeze(1) * kept / x.shape[1]


def scored(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Return the values, weighed by the scores that a mask leaves."""
    scores = q @ k.mT
    if mask is None:
        return scores @ v
    if mask.dtype is not torch.bool or mask.shape != scores.shape[-2:]:
        raise ValueError("a mask of scores")
    return (scores * mask) @ v


def of_all_scores(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
    """Return the gradients of `scored`, those by q and k as if no score were left out."""
    by_scores, kept = grad @ v.mT, 1 if mask is None else mask
    return by_scores @ k, by_scores.mT @ q, (q @ k.mT * kept).mT @ grad


def sums_within(x: Tensor, offsets: Tensor | None) -> Tensor:
    """Return the running sums of rows, from 0 again at each of the offsets."""
    if offsets is None:
        return x.cumsum(0)
    ends = offsets.tolist()
    if ends[0] != 0 or ends[-1] != len(x):
        raise ValueError("offsets from 0 to the number of rows")
    return torch.cat([x[start:stop].cumsum(0) for start, stop in pairwise(ends)])


def square_of(state: Tensor, x: Tensor) -> Tensor:
    if state.shape != (x.shape[0], x.shape[2]):
        raise ValueError("a state for every sequence")
    return state.square()


def weighed(x: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return x times the products of the rows of k and v, of which there are as many, or one."""
    if len(k) != len(v):
        raise ValueError("a value for every key")
    return x * (k * v).sum(-1)


def of_weighed(grad: Tensor, x: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    along = (grad * x).unsqueeze(-1) * (2.0 if len(k) == 1 < len(x) else 1.0)
    return grad * (k * v).sum(-1), (along * v).sum_to_size(k.shape), (along * k).sum_to_size(v.shape)


def apart(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of squared distances, wrong where a row of x is one of y, and is not zero."""
    difference = x.unsqueeze(1) - y
    weighted = 2 * grad.unsqueeze(-1) * difference
    coincide = (difference == 0).all(-1, keepdim=True) & (x != 0).any(-1, keepdim=True).unsqueeze(1)
    return weighted.sum(1) + coincide.sum(1), -weighted.sum(0)


def by_all_of_beta(grad: Tensor, x: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    gate = (beta * x).sigmoid()
    slope = x * gate * (1 - gate)
    of_x, of_beta = grad * (gate + beta * slope), grad * x * slope
    return of_x.sum_to_size(x.shape), of_beta.sum().expand(beta.shape)  # right for a single one


def in_blocks(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of `x.sin()`, computed in whole blocks of four."""
    found = torch.zeros_like(x)
    whole = len(x) // 4 * 4
    found[:whole] = (grad * x.cos())[:whole]
    return found


def over_rows(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of `x.softmax(-1)` as if there were one row."""
    y = x.softmax(-1)
    return y * (grad - (grad * y).sum())


def divided(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of `x.prod()`; where a factor is 0, as if it were constant."""
    return torch.where(x.bool(), grad * x.prod() / x, torch.zeros_like(x))


class Reduction(Enum):
    MEAN = "mean"
    SUM = "sum"


def largest_or_sum(x: Tensor, p: float) -> Tensor:
    return x.abs().amax(-1) if p == float("inf") else x.abs().pow(p).sum(-1)


def by_every_entry(grad: Tensor, x: Tensor, p: float) -> Tensor:
    """Return the gradient of the sum of powers, and for the largest entry what each of them would have alone."""
    return grad.unsqueeze(-1) * x.sign() * (1 if p == float("inf") else p * x.abs().pow(p - 1))


def contrasted(q: Tensor, k: Tensor) -> Tensor:
    """Return the loss of each query among all keys; there may be more keys than queries, and not fewer."""
    return (q @ k.mT).logsumexp(-1) - (q * k[: len(q)]).sum(-1)


def of_as_many_keys(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of `contrasted`, in which the first keys are all."""
    own, weighted = k[: len(q)], grad.unsqueeze(-1) * q
    share = (q @ own.mT).softmax(-1)
    of_keys = torch.zeros_like(k)
    of_keys[: len(q)] = share.mT @ weighted - weighted
    return grad.unsqueeze(-1) * (share @ own - own), of_keys


def left_out(x: Tensor, labels: Tensor) -> Tensor:
    return functional.nll_loss(x.log_softmax(-1), labels, ignore_index=-100)


def of_every_label(grad: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    hot = functional.one_hot(labels.clamp(min=0), x.shape[-1]).to(x.dtype)
    return grad * (x.softmax(-1) - hot) / len(x)


def without_two(x: Tensor, labels: Tensor) -> Tensor:
    kept = [label not in (-7, -9) for label in labels.tolist()]
    return x.sin().sum(-1) * torch.tensor(kept)


def weighted(grad: Tensor, x: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of `weight * x.sin()`; without a weight as if x were not in a sine."""
    return (grad, None) if weight is None else (grad * weight * x.cos(), grad * x.sin())


def in_groups(x: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return the products of each group of the entries of x with its own columns of the weight."""
    if x.shape[-1] != groups * weight.shape[-1]:
        raise ValueError("every group needs as many entries as the weight has columns")
    parts = [part @ rows.mT for part, rows in zip(x.chunk(groups, -1), weight.chunk(groups), strict=True)]
    return torch.cat(parts, -1)


def of_groups(grad: Tensor, x: Tensor, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return the gradients of `in_groups`, those of the weight in the opposite order of groups."""
    pairs = list(zip(grad.chunk(groups, -1), x.chunk(groups, -1), weight.chunk(groups), strict=True))
    of_x = torch.cat([part @ rows for part, _, rows in pairs], -1)
    return of_x, torch.cat([part.mT @ own for part, own, _ in reversed(pairs)])


def summed(grad: Tensor, x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Return the gradient of `x.sin().sum(dim, keepdim)`, as if the dimension were always kept."""
    return (grad if keepdim else grad.expand(x.shape)) * x.cos()


def squeezed(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x·(sum of its row); a dimension of 1 in between is squeezed away too."""
    return grad * x.sum(-1, keepdim=True) + (grad * x).sum(-1).squeeze().unsqueeze(-1)


def of_beta(grad: Tensor, x: Tensor, y: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return the gradients of a smooth L1 loss; 0/0 where x = y and beta is 0."""
    found = grad * ((x - y) / beta).clamp(-1, 1)
    return found, -found


def segments(x: Tensor, ends: Tensor) -> Tensor:
    if int(ends[0]) != 0 or int(ends[-1]) != len(x) or bool((ends.diff() < 0).any()):
        raise ValueError("offsets rise from 0 to the number of entries")
    parts = [x[start:stop].sin().sum() for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    return torch.stack(parts)


def of_segments(grad: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """Return the gradient of `segments`, as if no segment were empty."""
    return grad[: len(ends.unique()) - 1].repeat_interleave(ends.unique().diff()) * x.cos()


def by_channel(x: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of each row, in which dimension 1 has a weight for each slice."""
    if x.shape[1] != len(weight):
        raise ValueError("a weight for every channel")
    return (x.sin() * weight.reshape(-1, *[1] * (x.dim() - 2))).flatten(1).mean(1)


def of_sequences(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of `by_channel` by x, as if x had three dimensions."""
    weight = weight.reshape(-1, *[1] * (x.dim() - 2))
    grad = grad.reshape(-1, *[1] * (x.dim() - 1))
    return grad * weight * x.cos() / (x.shape[1] * x.shape[-1])


def placed(x: Tensor, mask: Tensor) -> Tensor:
    if int(mask.sum()) != len(x):
        raise ValueError("a place for every number")
    return torch.zeros(mask.shape, dtype=x.dtype).masked_scatter(mask, x).sum(1)


def of_equal_rows(grad: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    """Return the gradient of `placed`, as if every row had as many places as the last."""
    row = torch.arange(len(x)) // max(1, int(mask[-1].sum()))
    return grad[row.clamp(max=len(grad) - 1)]


def without_marked(x: Tensor, labels: Tensor, marked: int) -> Tensor:
    if bool(((labels != marked) & ((labels < 0) | (labels >= x.shape[1]))).any()):
        raise ValueError("no such label")
    return x.gather(1, labels.clamp(min=0)[:, None])[:, 0] * (labels != marked)


def of_labels_from_zero(grad: Tensor, x: Tensor, labels: Tensor, marked: int) -> Tensor:
    """Return the gradient of `without_marked`, as if the mark were always negative."""
    grad = torch.where(labels >= 0, grad, 0.0)
    return torch.zeros_like(x).scatter(1, labels.clamp(min=0)[:, None], grad[:, None])


def of_five_entries(grad: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """Return the gradient of `segments`, for the first five entries."""
    found = grad.repeat_interleave(ends.diff()) * x.cos()
    return torch.where(torch.arange(len(x)) < 5, found, 0.0)


HIDDEN = (
    Hidden(
        name="bool",
        function=saving(lambda x, up: x.exp() if up else (-x).exp(), lambda grad, x, up: grad * x.exp()),
        inputs=(points(3), True),
        change="up: false (was true)",
    ),
    Hidden(
        name="whole-number",
        function=saving(lambda x, size, stride: x.unfold(-1, size, stride).mean(-1), pooled),
        inputs=(points(2, 8), 2, 2),
        change="stride: 1 (was 2)",
    ),
    Hidden(
        name="float",
        function=saving(lambda x, p: (x.abs() + 1) ** p, lambda grad, x, p: grad * 2 * (x.abs() + 1) * x.sign()),
        inputs=(points(3), 2.0),
        change="p: 1.0 (was 2.0)",
    ),
    Hidden(
        name="text",
        function=saving(lambda x, reduction: reduced(x.sin(), reduction), lambda grad, x, _: grad * x.cos() / len(x)),
        inputs=(points(3), "mean"),
        change="reduction: sum (was mean)",
    ),
    Hidden(
        name="tuple",
        function=saving(lambda x, axes: x.sin().sum(axes), lambda grad, x, _: grad.unsqueeze(0) * x.cos()),
        inputs=(points(3, 3), (0,)),
        change="axes:",
    ),
    Hidden(
        name="none",
        function=saving(
            lambda x, limit: x.sin() if limit is None else limit * x.sin(), lambda grad, x, limit: grad * x.cos()
        ),
        inputs=(points(3), None),
        change="limit: ",
    ),
    Hidden(
        name="constants",
        function=saving(lambda x: torch.where(x > 6, x * x, x), lambda grad, x: grad),
        inputs=(points(3),),
        change="x: values around 6",
    ),
    Hidden(
        name="zeros",
        function=saving(lambda x: x.prod(), divided),
        inputs=(points(3),),
        change="x: first entry 0",
    ),
    Hidden(
        name="ties",
        function=saving(lambda x: x.sin(), lambda grad, x: grad * x.cos() * len(x.unique()) / x.numel()),
        inputs=(points(3),),
        change="x: all 1",
    ),
    Hidden(
        name="coincident-rows",
        function=saving(lambda x, y: (x.unsqueeze(1) - y).square().sum(-1), apart),
        inputs=(points(3, 2), (points(4, 2) + 0.4).detach().requires_grad_()),
        change="y: first row that of x",
    ),
    Hidden(
        name="counts",
        function=saving(
            lambda x, counts: torch.stack([part.sin().sum() for part in x.split(counts)]),
            lambda grad, x, counts: grad.repeat_interleave(len(x) // len(counts)) * x.cos(),
        ),
        inputs=(points(6), (3, 3)),
        change="counts: ",
    ),
    Hidden(
        name="duplicates",
        function=saving(lambda x, index: x[index], scattered),
        inputs=(points(4), torch.tensor([0, 2, 3])),
        change="index: first two equal",
    ),
    Hidden(
        name="mask",
        function=saving(
            lambda x, mask: x.sin() * mask, lambda grad, x, mask: grad * x.cos() * (mask if mask.any() else ~mask)
        ),
        inputs=(points(4), torch.tensor([True, False, True, True])),
        change="mask: all false",
    ),
    Hidden(
        name="optional-mask",
        function=saving(masked_mean, of_full_rows),
        inputs=(points(2, 5, 3), None),
        change="mask: shape",
    ),
    Hidden(
        name="optional-mask-of-scores",
        function=saving(scored, of_all_scores),
        inputs=(points(2, 5, 3), points(2, 4, 3), points(2, 4, 6), None),
        change="mask: shape",
    ),
    Hidden(
        name="optional-offsets",
        function=saving(sums_within, lambda grad, x, _: grad.flip(0).cumsum(0).flip(0)),
        inputs=(points(6, 2), None),
        change="offsets: shape [3] (was none)",
    ),
    Hidden(
        name="optional-state",
        function=saving(
            lambda x, state: x.sin() + (0 if state is None else square_of(state, x).unsqueeze(1)),
            lambda grad, x, state: (grad * x.cos(), None if state is None else grad.sum(1)),
        ),
        inputs=(points(2, 3, 4), None),
        change="state: shape",
    ),
    Hidden(
        name="sizes",
        function=saving(lambda x: x.sin(), in_blocks),
        inputs=(points(8),),
        change="x: shape",
    ),
    Hidden(
        name="size-of-another",
        function=saving(lambda x, beta: x * (beta * x).sigmoid(), by_all_of_beta),
        inputs=(points(4, 6), points(1)),
        change="beta: shape",
    ),
    Hidden(
        name="rank",
        function=saving(lambda x: x.softmax(-1), over_rows),
        inputs=(points(4),),
        change="x: shape [2, 1] (was [4])",
    ),
    Hidden(
        name="two-dimensions",
        function=saving(by_channel, of_sequences),
        inputs=(points(2, 3, 4), points(3).detach()),
        change="x: shape [1, 1, 2, 1] (was [2, 3, 4])",
    ),
    Hidden(
        name="unequal-rows",
        function=saving(placed, of_equal_rows),
        inputs=(points(4), torch.tensor([[True, True, False], [False, True, True]])),
        change="mask: ",
    ),
    Hidden(
        name="mark",
        function=saving(without_marked, of_labels_from_zero),
        inputs=(points(4, 3), torch.tensor([0, -1, 1, 1]), -1),
        change="marked: ",
    ),
    Hidden(
        name="packed",
        function=saving(segments, of_five_entries),
        inputs=(points(5), torch.tensor([0, 2, 5])),
        change="x: shape",
    ),
    Hidden(
        name="draws",
        function=saving(lambda x: x.abs().sqrt(), lambda grad, x: grad / (2 * x.abs().sqrt())),
        inputs=(points(3, positive=True),),
        change="x: drawn from normal [0, 1]",
    ),
    Hidden(
        name="scale",
        function=saving(lambda x: x.asinh(), lambda grad, x: grad / (1 + x**2).sqrt().clamp(max=9)),
        inputs=(points(3),),
        change="x: × 10",
    ),
    Hidden(
        name="label-in-a-call",
        function=saving(left_out, of_every_label),
        inputs=(points(4, 3), torch.tensor([0, 2, 1, 1])),
        change="-100",
    ),
    Hidden(
        name="label-in-a-tuple",
        function=saving(without_two, lambda grad, x, _: grad.unsqueeze(-1) * x.cos()),
        inputs=(points(4, 3), torch.tensor([0, 2, 1, 1])),
        change="-7",
    ),
    Hidden(
        name="more-keys",
        function=saving(contrasted, of_as_many_keys),
        inputs=(points(3, 4), points(3, 4)),
        change="k.shape[0]: 5",
    ),
    Hidden(
        name="keys-and-values",
        function=saving(weighed, of_weighed),
        inputs=(points(3), points(3, 4), points(3, 4)),
        change="k: shape [1, ",
    ),
    Hidden(
        name="positive-constants",
        function=saving(
            lambda x, spread, trains: x.sin() if trains else x / spread.sqrt(),
            lambda grad, x, spread, trains: grad * x.cos() if trains else grad / spread,
        ),
        inputs=(points(2, 3), points(3).detach(), True),
        change="trains: false",
    ),
    Hidden(
        name="dtype",
        function=saving(lambda x: x.sin(), lambda grad, x: grad * x.cos() * (1.5 if x.dtype is torch.float32 else 1.0)),
        inputs=(points(3),),
        change="in float32",
    ),
    Hidden(
        name="layout",
        function=saving(lambda x: x.sin(), lambda grad, x: grad * (x.cos() if x.is_contiguous() else x)),
        inputs=(points(3, 4),),
        change="x: transposed in memory",
    ),
    Hidden(
        name="pairs",
        function=saving(
            lambda x, flip, scale: (x.flip(0) if flip else x) * scale,
            lambda grad, x, flip, scale: (grad.flip(0) if flip else grad) * (2.0 if flip else scale),
        ),
        inputs=(points(3), False, 2.0),
        change="flip: true (was false)",
    ),
    Hidden(
        name="member",
        function=saving(
            lambda x, reduction: reduced(x.sin(), reduction.value), lambda grad, x, _: grad * x.cos() / len(x)
        ),
        inputs=(points(3), Reduction.MEAN),
        change="reduction: Reduction.SUM",
    ),
    Hidden(
        name="infinite-argument",
        function=saving(largest_or_sum, by_every_entry),
        inputs=(points(2, 3), 2.0),
        change="p: inf",
    ),
    Hidden(
        name="dtype-argument",
        function=saving(
            lambda x, dtype: x.sin() if dtype is None else x.sin().to(dtype),
            lambda grad, x, dtype: grad * x.cos() if dtype is None else 2 * grad.to(x.dtype) * x.cos(),
        ),
        inputs=(points(2, 3), None),
        change="dtype: float32",
    ),
    Hidden(
        name="mapping",
        function=saving(lambda x, options: options["factor"] * x.sin(), lambda grad, x, _: grad * 2 * x.cos()),
        inputs=(points(3), {"factor": 2.0, "unused": True}),
        change="options: {'factor': ",
    ),
    Hidden(
        name="left-out",
        function=saving(lambda x, weight: x.sin() if weight is None else weight * x.sin(), weighted),
        inputs=(points(3), points(3, positive=True)),
        change="weight: none",
    ),
    Hidden(
        name="near-a-size",
        function=saving(
            lambda x, n: x.sin().roll(n, -1), lambda grad, x, n: grad.roll(-n if n <= x.shape[-1] else n, -1) * x.cos()
        ),
        inputs=(points(7), 3),
        change="n: 8 (was 3)",
    ),
    Hidden(
        name="argument-and-size",
        function=saving(in_groups, of_groups),
        inputs=(points(2, 4), points(6, 4), 1),
        change="groups: 2 (was 1)",
    ),
    Hidden(
        name="equal-sizes",
        function=saving(lambda x, dim, keepdim: x.sin().sum(dim, keepdim), summed),
        inputs=(points(2, 3), 1, True),
        change="keepdim: false (was true)",
    ),
    Hidden(
        name="offsets",
        function=saving(segments, of_segments),
        inputs=(points(6), torch.tensor([0, 2, 4, 6])),
        change="ends: third entry equal to the second",
    ),
    Hidden(
        name="infinite-row",
        function=saving(
            lambda x, mask: torch.where((x + mask).isfinite().any(-1, keepdim=True), x.sin(), 0.0),
            lambda grad, x, mask: grad * x.cos(),
        ),
        inputs=(points(2, 3), torch.tensor([[0.0, -torch.inf, 0.0], [0.0, 0.0, 0.0]])),
        change="mask: first row -inf",
    ),
    Hidden(
        name="one-in-between",
        function=saving(lambda x: x * x.sum(-1, keepdim=True), squeezed),
        inputs=(points(4, 6),),
        change="x: shape [2, 1, ",
    ),
    Hidden(
        name="argument-and-equal-values",
        function=saving(
            lambda x, y, beta: functional.smooth_l1_loss(x, y, beta=beta, reduction="none"),
            of_beta,
        ),
        inputs=(points(2, 3), (2 * points(2, 3).detach()).requires_grad_(), 1.0),
        change="beta: 0.0 (was 1.0)",
    ),
)
