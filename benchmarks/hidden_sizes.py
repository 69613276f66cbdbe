"""Hidden mistakes that show at other sizes: beyond a tile, odd, not divisible, or no longer equal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal

_TILE = 16  # rows that one program of the kernel adds up


class ChannelShuffle(Function):
    """Channels of `groups` groups in turn: (n, c, l) -> (n, c, l)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: int) -> Tensor:
        if x.dim() != 3 or groups < 1 or x.shape[1] % groups:
            raise ValueError("x must be (n, c, l), and groups divide c")
        ctx.groups = groups
        return _shuffled(x, groups)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _shuffled(grad, grad.shape[1] // ctx.groups), None


class ChannelShuffleAgain(ChannelShuffle):
    """Backward shuffles once more; that is the inverse only of as many groups as channels in a group."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _shuffled(grad, ctx.groups), None


def _shuffled(x: Tensor, groups: int) -> Tensor:
    n, channels, length = x.shape
    return x.view(n, groups, channels // groups, length).transpose(1, 2).reshape(n, channels, length)


class Affine(Function):
    """x * weight + bias, with the gradients of both added up in tiles of rows: (n, d), (d,), (d,) -> (n, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if x.dim() != 2 or not weight.shape == bias.shape == x.shape[1:]:
            raise ValueError("x must be (n, d), weight and bias (d,)")
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        tiles = -(-len(x) // _TILE)
        return grad * weight, _sum_of_tiles(grad * x, tiles), _sum_of_tiles(grad, tiles)


class AffineWithoutTail(Affine):
    """Rows after the last whole tile are left out."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        tiles = max(len(x) // _TILE, 1)
        return grad * weight, _sum_of_tiles(grad * x, tiles), _sum_of_tiles(grad, tiles)


def _sum_of_tiles(rows: Tensor, tiles: int) -> Tensor:
    total = rows.new_zeros(rows.shape[1])
    for tile in range(tiles):
        total += rows[tile * _TILE : (tile + 1) * _TILE].sum(0)
    return total


class StreamedCrossEntropy(Function):
    """Mean cross entropy that reads the classes in blocks: logits (n, c), target (n,) -> ()."""

    BLOCK = 64

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        if logits.dim() != 2 or target.shape != logits.shape[:1]:
            raise ValueError("logits must be (n, c), target (n,)")
        top = logits.new_full((len(logits),), -torch.inf)
        total = torch.zeros_like(top)
        for block in logits.split(StreamedCrossEntropy.BLOCK, dim=1):
            of_block = block.amax(1)
            new = torch.maximum(top, of_block)
            total = total * (top - new).exp() + (block - new.unsqueeze(1)).exp().sum(1)
            top = new
        target = target.unsqueeze(1)
        ctx.save_for_backward(logits, target, top, of_block, total)
        return (top + total.log() - logits.gather(1, target).squeeze(1)).mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, target, top, _, total = ctx.saved_tensors
        return _cross_entropy_vjp(grad, logits, target, top, total), None


class StreamedCrossEntropyLastBlock(StreamedCrossEntropy):
    """Backward subtracts the largest logit of the last block instead of that of all."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, target, _, of_block, total = ctx.saved_tensors
        return _cross_entropy_vjp(grad, logits, target, of_block, total), None


def _cross_entropy_vjp(grad: Tensor, logits: Tensor, target: Tensor, top: Tensor, total: Tensor) -> Tensor:
    chances = (logits - top.unsqueeze(1)).exp() / total.unsqueeze(1)
    return grad * chances.scatter_add(1, target, -torch.ones_like(logits[:, :1])) / len(logits)


class PowerSpectrum(Function):
    """Power at the frequencies from zero on: real (..., n) -> (..., n // 2 + 1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x)
        ctx.save_for_backward(spectrum)
        ctx.n = x.shape[-1]
        return spectrum.abs().square() / ctx.n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (spectrum,) = ctx.saved_tensors
        share = torch.full_like(grad, 0.5)  # irfft counts every frequency twice that has a negative one
        share[..., 0] = 1
        if ctx.n % 2 == 0:
            share[..., -1] = 1
        return 2 * torch.fft.irfft(spectrum * (grad * share), ctx.n)


class PowerSpectrumEven(PowerSpectrum):
    """Backward takes the last frequency for the Nyquist frequency, which an odd length does not have."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (spectrum,) = ctx.saved_tensors
        share = torch.full_like(grad, 0.5)
        share[..., 0] = share[..., -1] = 1
        return 2 * torch.fft.irfft(spectrum * (grad * share), ctx.n)


class NearestResize(Function):
    """Nearest neighbours, rounded down: (..., n) -> (..., size)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int) -> Tensor:
        if size < 1:
            raise ValueError("size must be at least 1")
        ctx.shape = x.shape
        return x.index_select(-1, torch.arange(size) * x.shape[-1] // size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        n, size = ctx.shape[-1], grad.shape[-1]
        return grad.new_zeros(ctx.shape).index_add_(-1, torch.arange(size) * n // size, grad), None


class NearestResizeWhole(NearestResize):
    """Backward adds up runs of one length, as if `size` were a multiple of n."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        n, size = ctx.shape[-1], grad.shape[-1]
        times = size // n
        return grad[..., : n * times].unflatten(-1, (n, times)).sum(-1), None


class ContrastiveLoss(Function):
    """Mean cross entropy of finding key i for query i: query (n, d), key (m, d), m at least n -> ()."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, temperature: float) -> Tensor:
        if query.dim() != 2 or key.dim() != 2 or len(key) < len(query) or not temperature > 0:
            raise ValueError("query must be (n, d), key (m, d) with m at least n, and temperature above 0")
        scores = query @ key.mT / temperature
        ctx.save_for_backward(query, key, scores)
        ctx.temperature = temperature
        return -scores.log_softmax(-1).diagonal().mean()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key, scores = ctx.saved_tensors
        return *_contrastive_vjp(grad / len(query), query, key, scores, ctx.temperature), None


class ContrastiveLossPerKey(ContrastiveLoss):
    """Backward divides by the number of keys instead of queries."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key, scores = ctx.saved_tensors
        return *_contrastive_vjp(grad / len(key), query, key, scores, ctx.temperature), None


def _contrastive_vjp(grad: Tensor, query: Tensor, key: Tensor, scores: Tensor, temperature: float) -> list[Tensor]:
    hit = torch.eye(*scores.shape, dtype=scores.dtype)
    slope = grad * (scores.softmax(-1) - hit) / temperature
    return [slope @ key, slope.mT @ query]


SIZES = (
    Hidden(
        name="channel shuffle",
        change="sizes",
        wrong=ChannelShuffleAgain,
        right=ChannelShuffle,
        inputs=lambda: (normal(60, 2, 4, 2), 2),
        shows_at=lambda: (normal(60, 2, 6, 2), 2),
    ),
    Hidden(
        name="affine in tiles",
        change="sizes",
        wrong=AffineWithoutTail,
        right=Affine,
        inputs=lambda: (normal(61, 4, 3), normal(62, 3), normal(63, 3)),
        shows_at=lambda: (normal(61, 17, 3), normal(62, 3), normal(63, 3)),
    ),
    Hidden(
        name="streamed cross entropy",
        change="sizes",
        wrong=StreamedCrossEntropyLastBlock,
        right=StreamedCrossEntropy,
        inputs=lambda: (normal(64, 2, 6), torch.tensor([4, 1])),
        shows_at=lambda: (normal(64, 2, 65), torch.tensor([4, 1])),
    ),
    Hidden(
        name="power spectrum",
        change="sizes",
        wrong=PowerSpectrumEven,
        right=PowerSpectrum,
        inputs=lambda: (normal(65, 2, 8),),
        shows_at=lambda: (normal(65, 2, 7),),
    ),
    Hidden(
        name="nearest neighbour resize",
        change="sizes",
        wrong=NearestResizeWhole,
        right=NearestResize,
        inputs=lambda: (normal(66, 2, 3), 6),
        shows_at=lambda: (normal(66, 2, 4), 6),
    ),
    Hidden(
        name="contrastive loss",
        change="sizes",
        wrong=ContrastiveLossPerKey,
        right=ContrastiveLoss,
        inputs=lambda: (normal(67, 3, 4), normal(68, 3, 4), 0.5),
        shows_at=lambda: (normal(67, 3, 4), normal(68, 5, 4), 0.5),
    ),
)
