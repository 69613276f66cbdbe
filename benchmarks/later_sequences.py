"""More hidden mistakes: scans, positions, attention and masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from benchmarks.hidden_subject import Hidden, normal, uniform


class LinearScan(Function):
    """h[t] = a[t] * h[t - 1] + b[t] along the last dimension, from its end if `reverse`: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, reverse: bool) -> Tensor:
        if a.shape != b.shape or not a.numel():
            raise ValueError("a and b must have one shape, and not be empty")
        h = _scanned(a.flip(-1), b.flip(-1)).flip(-1) if reverse else _scanned(a, b)
        ctx.save_for_backward(a, h)
        ctx.reverse = reverse
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, h = ctx.saved_tensors
        of_b = _scan_vjp(grad, a, ctx.reverse)
        before = pad(h[..., 1:], (0, 1)) if ctx.reverse else pad(h[..., :-1], (1, 0))
        return of_b * before, of_b, None


class LinearScanForward(LinearScan):
    """The gradient of `a` multiplies with h[t - 1] in both directions."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, h = ctx.saved_tensors
        of_b = _scan_vjp(grad, a, ctx.reverse)
        return of_b * pad(h[..., :-1], (1, 0)), of_b, None


def _scanned(a: Tensor, b: Tensor) -> Tensor:
    steps = list(b.unbind(-1))
    for t, decay in enumerate(a.unbind(-1)[1:], start=1):
        steps[t] = steps[t] + decay * steps[t - 1]
    return torch.stack(steps, -1)


def _scan_vjp(grad: Tensor, a: Tensor, reverse: bool) -> Tensor:
    if reverse:
        return _scanned(pad(a[..., :-1], (1, 0)), grad)
    return _scanned(pad(a[..., 1:], (0, 1)).flip(-1), grad.flip(-1)).flip(-1)


class RotaryEmbedding(Function):
    """Pairs of features turned by an angle that grows with the position: (..., n, d) -> (..., n, d), d even.

    Feature i is paired with feature i + d / 2, or with its neighbour if `interleaved`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, base: float, interleaved: bool) -> Tensor:
        if x.dim() < 2 or x.shape[-1] % 2 or not base > 0:
            raise ValueError("x must be (..., n, d) with an even d, and base above 0")
        ctx.base, ctx.interleaved = base, interleaved
        return _turned(x, base, interleaved, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _turned(grad, ctx.base, ctx.interleaved, -1), None, None


class RotaryEmbeddingHalves(RotaryEmbedding):
    """Backward always pairs the halves."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _turned(grad, ctx.base, False, -1), None, None


def _turned(x: Tensor, base: float, interleaved: bool, sign: int) -> Tensor:
    n, d = x.shape[-2:]
    frequency = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angle = torch.arange(n, dtype=x.dtype).unsqueeze(1) * frequency
    cos, sin = angle.cos(), sign * angle.sin()
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., : d // 2], x[..., d // 2 :])
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)


class CausalAttention(Function):
    """Attention of queries (n, d) to keys (m, d) and values (m, e): (n, e).

    If `causal`, the last query sees all keys and each query before it one key less. Backward computes the
    probabilities anew instead of keeping them.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        n, m = len(query), len(key)
        if any(x.dim() != 2 for x in (query, key, value)) or query.shape[1] != key.shape[1] or len(value) != m:
            raise ValueError("query must be (n, d), key (m, d), value (m, e)")
        if causal and m < n:
            raise ValueError("causal attention needs a key per query")
        ctx.save_for_backward(query, key, value)
        ctx.causal = causal
        return _probabilities(query, key, m - n if causal else None) @ value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value = ctx.saved_tensors
        shift = len(key) - len(query) if ctx.causal else None
        return *_attention_vjp(grad, query, key, value, _probabilities(query, key, shift)), None


class CausalAttentionFromStart(CausalAttention):
    """Backward lets the first query see the first key, query i the keys up to i."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value = ctx.saved_tensors
        shift = 0 if ctx.causal else None
        return *_attention_vjp(grad, query, key, value, _probabilities(query, key, shift)), None


def _probabilities(query: Tensor, key: Tensor, shift: int | None) -> Tensor:
    scores = query @ key.mT / query.shape[1] ** 0.5
    if shift is not None:
        seen = torch.ones_like(scores, dtype=torch.bool).tril(shift)
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1)


def _attention_vjp(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    of_p = grad @ value.mT
    of_scores = p * (of_p - (p * of_p).sum(-1, keepdim=True)) / query.shape[1] ** 0.5
    return of_scores @ key, of_scores.mT @ query, p.mT @ grad


class GroupedScores(Function):
    """Scores of queries (h, n, d) and keys (g, m, d), each key head shared by h / g query heads: (h, n, m)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor) -> Tensor:
        if query.dim() != 3 or key.dim() != 3 or query.shape[2] != key.shape[2] or len(query) % len(key):
            raise ValueError("query must be (h, n, d), key (g, m, d), and g divide h")
        ctx.save_for_backward(query, key)
        return query @ key.repeat_interleave(len(query) // len(key), 0).mT

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, key = ctx.saved_tensors
        each = len(query) // len(key)
        of_key = (grad.mT @ query).unflatten(0, (len(key), each)).sum(1)
        return grad @ key.repeat_interleave(each, 0), of_key


class GroupedScoresStrided(GroupedScores):
    """The gradient of a key head adds up every g-th query head instead of neighbouring ones."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        query, key = ctx.saved_tensors
        each = len(query) // len(key)
        of_key = (grad.mT @ query).unflatten(0, (each, len(key))).sum(0)
        return grad @ key.repeat_interleave(each, 0), of_key


class MaskedSoftmax(Function):
    """Softmax over the places at which mask is True; rows without one are 0: (..., n), (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor) -> Tensor:
        if mask.dtype != torch.bool or mask.shape != scores.shape:
            raise ValueError("mask must be boolean and have the shape of scores")
        p = _masked_softmax(scores, mask).masked_fill(~mask.any(-1, keepdim=True), 0)
        ctx.save_for_backward(scores, mask, p)
        return p

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        _, _, p = ctx.saved_tensors
        return p * (grad - (p * grad).sum(-1, keepdim=True)), None


class MaskedSoftmaxAnew(MaskedSoftmax):
    """Backward computes the softmax anew, which is NaN in a row without a True."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        scores, mask, _ = ctx.saved_tensors
        p = _masked_softmax(scores, mask)
        return p * (grad - (p * grad).sum(-1, keepdim=True)), None


def _masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(-1)


LATER_SEQUENCES = (
    Hidden(
        name="linear scan",
        change="arguments",
        wrong=LinearScanForward,
        right=LinearScan,
        inputs=lambda: (uniform(100, 0.2, 0.9, 2, 4), normal(101, 2, 4), False),
        shows_at=lambda: (uniform(100, 0.2, 0.9, 2, 4), normal(101, 2, 4), True),
    ),
    Hidden(
        name="rotary embedding",
        change="arguments",
        wrong=RotaryEmbeddingHalves,
        right=RotaryEmbedding,
        inputs=lambda: (normal(102, 3, 4), 10000.0, False),
        shows_at=lambda: (normal(102, 3, 4), 10000.0, True),
    ),
    Hidden(
        name="causal attention",
        change="pairs",
        wrong=CausalAttentionFromStart,
        right=CausalAttention,
        inputs=lambda: (normal(103, 3, 2), normal(104, 3, 2), normal(105, 3, 2), False),
        shows_at=lambda: (normal(103, 2, 2), normal(104, 3, 2), normal(105, 3, 2), True),
    ),
    Hidden(
        name="grouped query scores",
        change="sizes",
        wrong=GroupedScoresStrided,
        right=GroupedScores,
        inputs=lambda: (normal(106, 4, 3, 2), normal(107, 4, 3, 2)),
        shows_at=lambda: (normal(106, 4, 3, 2), normal(107, 2, 3, 2)),
    ),
    Hidden(
        name="masked softmax",
        change="zeros",
        wrong=MaskedSoftmaxAnew,
        right=MaskedSoftmax,
        inputs=lambda: (normal(108, 2, 3), torch.tensor([[True, True, False], [True, True, True]])),
        shows_at=lambda: (normal(108, 2, 3), torch.tensor([[True, True, False], [False, False, False]])),
    ),
)
