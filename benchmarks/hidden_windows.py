"""Hidden mistakes of windows, padding and resampling that show at other arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from benchmarks.hidden_subject import Hidden, normal


class Frames(Function):
    """Frames of a signal: (..., n) -> (..., m, size), one frame every `hop` samples."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, hop: int) -> Tensor:
        if not (1 <= size <= x.shape[-1] and hop >= 1):
            raise ValueError("size must be between 1 and the length, hop at least 1")
        ctx.shape, ctx.size, ctx.hop = x.shape, size, hop
        return x.unfold(-1, size, hop).clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        dx = grad.new_zeros(ctx.shape)
        for k in range(ctx.size):
            dx[..., k : k + ctx.hop * grad.shape[-2] : ctx.hop] += grad[..., k]
        return dx, None, None


class FramesOverwritten(Frames):
    """Overlapping frames overwrite each other's gradient."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        dx = grad.new_zeros(ctx.shape)
        for k in range(ctx.size):
            dx[..., k : k + ctx.hop * grad.shape[-2] : ctx.hop] = grad[..., k]
        return dx, None, None


class CausalConvolution(Function):
    """Filter with a dilated kernel: y[t] = sum of weight[k] * x[t - k * dilation]; (..., n), (kernel,) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dilation: int) -> Tensor:
        if dilation < 1 or weight.dim() != 1:
            raise ValueError("dilation must be at least 1, and weight have one dimension")
        ctx.save_for_backward(x, weight)
        ctx.dilation = dilation
        y = torch.zeros_like(x)
        for k in range(len(weight)):
            y = y + weight[k] * _delayed(x, k * dilation)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        return *_convolution_vjp(grad, x, weight, ctx.dilation, ctx.dilation), None


class CausalConvolutionUndilated(CausalConvolution):
    """The gradient of the weight forgets the dilation."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        return *_convolution_vjp(grad, x, weight, ctx.dilation, 1), None


def _delayed(x: Tensor, steps: int) -> Tensor:
    return pad(x, (steps, 0))[..., : x.shape[-1]]


def _convolution_vjp(grad: Tensor, x: Tensor, weight: Tensor, of_x: int, of_weight: int) -> tuple[Tensor, Tensor]:
    dx, dweight = torch.zeros_like(x), torch.zeros_like(weight)
    for k in range(len(weight)):
        dx = dx + weight[k] * pad(grad, (0, k * of_x))[..., k * of_x :]
        dweight[k] = (grad * _delayed(x, k * of_weight)).sum()
    return dx, dweight


class AveragePool(Function):
    """Mean of windows, the last of them cut short in ceil mode: (..., n) -> (..., m)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, stride: int, ceil_mode: bool) -> Tensor:
        n = x.shape[-1]
        if not (1 <= size <= n and stride >= 1):
            raise ValueError("size must be between 1 and the length, stride at least 1")
        left = n - size
        count = (-(-left // stride) if ceil_mode else left // stride) + 1
        starts = [i * stride for i in range(count) if i * stride < n]
        ctx.shape, ctx.windows, ctx.size = x.shape, [(start, min(start + size, n)) for start in starts], size
        return torch.stack([x[..., start:end].mean(-1) for start, end in ctx.windows], dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        dx = grad.new_zeros(ctx.shape)
        for i, (start, end) in enumerate(ctx.windows):
            dx[..., start:end] += grad[..., i : i + 1] / (end - start)
        return dx, None, None, None


class AveragePoolFullWindows(AveragePool):
    """A window that is cut short is divided by the full size."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        dx = grad.new_zeros(ctx.shape)
        for i, (start, end) in enumerate(ctx.windows):
            dx[..., start:end] += grad[..., i : i + 1] / ctx.size
        return dx, None, None, None


class Upsample(Function):
    """Linear interpolation to `size` samples: (..., n) -> (..., size)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, align_corners: bool) -> Tensor:
        if size < 1:
            raise ValueError("size must be at least 1")
        ctx.shape, ctx.align_corners = x.shape, align_corners
        low, high, share = _neighbours(x.shape[-1], size, align_corners)
        share = share.to(x.dtype)
        return x[..., low] * (1 - share) + x[..., high] * share

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _upsample_vjp(grad, ctx.shape, ctx.align_corners), None, None


class UpsampleHalfPixel(Upsample):
    """Backward places the samples as without align_corners."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _upsample_vjp(grad, ctx.shape, False), None, None


def _neighbours(n: int, size: int, align_corners: bool) -> tuple[Tensor, Tensor, Tensor]:
    steps = torch.arange(size, dtype=torch.float64)
    aligned = steps * (n - 1) / max(size - 1, 1)
    place = aligned if align_corners else ((steps + 0.5) * n / size - 0.5).clamp(0, n - 1)
    low = place.floor().long()
    return low, (low + 1).clamp(max=n - 1), place - low


def _upsample_vjp(grad: Tensor, shape: torch.Size, align_corners: bool) -> Tensor:
    low, high, share = _neighbours(shape[-1], grad.shape[-1], align_corners)
    share = share.to(grad.dtype)
    dx = grad.new_zeros(shape).index_add_(-1, low, grad * (1 - share))
    return dx.index_add_(-1, high, grad * share)


class Padded(Function):
    """Pad the last dimension with zeros, its border, its reflection or its other end: (..., n) -> (..., m)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, left: int, right: int, mode: str) -> Tensor:
        n = x.shape[-1]
        if left < 0 or right < 0 or (mode == "reflect" and max(left, right) >= n):
            raise ValueError("padding must not be negative, and smaller than the input in mode reflect")
        ctx.shape, ctx.left, ctx.source = x.shape, left, None
        place = torch.arange(-left, n + right)
        if mode == "constant":
            return pad(x, (left, right))
        if mode == "replicate":
            place = place.clamp(0, n - 1)
        elif mode == "reflect":
            place = (n - 1) - ((n - 1) - place.abs()).abs()
        elif mode == "circular":
            place = place % n
        else:
            raise ValueError(f"unknown mode {mode}")
        ctx.source, ctx.mode = place, mode
        return x.index_select(-1, place)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.source is None:
            return grad.narrow(-1, ctx.left, ctx.shape[-1]), None, None, None
        return grad.new_zeros(ctx.shape).index_add_(-1, ctx.source, grad), None, None, None


class PaddedWithoutBorder(Padded):
    """The copies of the border pass no gradient on."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.source is None or ctx.mode == "replicate":
            return grad.narrow(-1, ctx.left, ctx.shape[-1]), None, None, None
        return grad.new_zeros(ctx.shape).index_add_(-1, ctx.source, grad), None, None, None


class SmoothedMean(Function):
    """Mean of the windows at every place, with zeros around that count or do not: (..., n) -> (..., m)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, padding: int, count_include_pad: bool) -> Tensor:
        if not (0 <= padding <= size // 2 and 1 <= size <= x.shape[-1]):
            raise ValueError("size must be between 1 and the length, padding between 0 and half the size")
        sums = pad(x, (padding, padding)).unfold(-1, size, 1).sum(-1)
        inside = pad(torch.ones_like(x), (padding, padding)).unfold(-1, size, 1).sum(-1)
        ctx.size, ctx.padding = size, padding
        ctx.counts = torch.full_like(inside, size) if count_include_pad else inside
        return sums / ctx.counts

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _spread(grad / ctx.counts, ctx.size, ctx.padding), None, None, None


class SmoothedMeanFullCounts(SmoothedMean):
    """Backward divides by the size, as if the padding always counted."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _spread(grad / ctx.size, ctx.size, ctx.padding), None, None, None


def _spread(shares: Tensor, size: int, padding: int) -> Tensor:
    count = shares.shape[-1]
    dx = shares.new_zeros(*shares.shape[:-1], count + size - 1)
    for k in range(size):
        dx[..., k : k + count] += shares
    return dx[..., padding : dx.shape[-1] - padding]


WINDOWS = (
    Hidden(
        name="frames of a signal",
        change="arguments",
        wrong=FramesOverwritten,
        right=Frames,
        inputs=lambda: (normal(0, 2, 8), 4, 4),
        shows_at=lambda: (normal(0, 2, 8), 4, 2),
    ),
    Hidden(
        name="causal convolution",
        change="arguments",
        wrong=CausalConvolutionUndilated,
        right=CausalConvolution,
        inputs=lambda: (normal(1, 2, 6), normal(2, 3), 1),
        shows_at=lambda: (normal(1, 2, 6), normal(2, 3), 2),
    ),
    Hidden(
        name="average pool in ceil mode",
        change="arguments",
        wrong=AveragePoolFullWindows,
        right=AveragePool,
        inputs=lambda: (normal(3, 2, 8), 3, 2, False),
        shows_at=lambda: (normal(3, 2, 8), 3, 2, True),
    ),
    Hidden(
        name="linear upsampling",
        change="arguments",
        wrong=UpsampleHalfPixel,
        right=Upsample,
        inputs=lambda: (normal(4, 2, 4), 7, False),
        shows_at=lambda: (normal(4, 2, 4), 7, True),
    ),
    Hidden(
        name="padding",
        change="arguments",
        wrong=PaddedWithoutBorder,
        right=Padded,
        inputs=lambda: (normal(5, 2, 5), 2, 1, "constant"),
        shows_at=lambda: (normal(5, 2, 5), 2, 1, "replicate"),
    ),
    Hidden(
        name="smoothing with padding",
        change="pairs",
        wrong=SmoothedMeanFullCounts,
        right=SmoothedMean,
        inputs=lambda: (normal(6, 2, 6), 3, 0, True),
        shows_at=lambda: (normal(6, 2, 6), 3, 1, False),
    ),
)
