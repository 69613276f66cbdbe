"""More hidden mistakes: transforms, wavelets, levels and dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from benchmarks.hidden_subject import Hidden, normal, numbers, uniform

_ADJOINT = {"backward": "forward", "ortho": "ortho", "forward": "backward"}  # norm of the inverse that is the adjoint


class FourierTransform(Function):
    """Discrete Fourier transform of complex x with a norm: (..., n) -> (..., n)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: str) -> Tensor:
        if not x.is_complex() or norm not in _ADJOINT:
            raise ValueError(f"x must be complex, and norm one of {', '.join(_ADJOINT)}")
        ctx.norm = norm
        return torch.fft.fft(x, norm=norm)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.fft.ifft(grad, norm=_ADJOINT[ctx.norm]), None


class FourierTransformUnscaled(FourierTransform):
    """Backward is the adjoint of the transform without a factor, whatever the norm."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return torch.fft.ifft(grad, norm="forward"), None


class HaarWavelet(Function):
    """Averages and details of neighbours; an odd length is continued by its last sample: (..., n) -> 2 (..., m)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        if not x.dim() or not x.shape[-1]:
            raise ValueError("x must have a last dimension that is not empty")
        ctx.n = x.shape[-1]
        even, odd = x[..., ::2], x[..., 1::2]
        if ctx.n % 2:
            odd = torch.cat([odd, x[..., -1:]], -1)
        return (even + odd) / 2**0.5, (even - odd) / 2**0.5

    @staticmethod
    def backward(ctx: Any, of_average: Tensor, of_detail: Tensor) -> Tensor:
        pairs = _haar_pairs(of_average, of_detail)
        if ctx.n % 2:
            return torch.cat([pairs[..., : ctx.n - 1], pairs[..., -2:].sum(-1, keepdim=True)], -1)
        return pairs


class HaarWaveletCropped(HaarWavelet):
    """The gradient of the sample that continues an odd length is cut off."""

    @staticmethod
    def backward(ctx: Any, of_average: Tensor, of_detail: Tensor) -> Tensor:
        return _haar_pairs(of_average, of_detail)[..., : ctx.n]


def _haar_pairs(average: Tensor, detail: Tensor) -> Tensor:
    return torch.stack([average + detail, average - detail], -1).flatten(-2) / 2**0.5


class Decibels(Function):
    """Levels 10 * log10(max(power, amin)), not more than top_db below the loudest: (...) -> (...)."""

    @staticmethod
    def forward(ctx: Any, power: Tensor, amin: float, top_db: float) -> Tensor:
        if not power.numel() or not amin > 0 or not top_db >= 0:
            raise ValueError("power must not be empty, amin above 0, top_db at least 0")
        levels = 10 * power.clamp(min=amin).log10()
        floor = levels.amax() - top_db
        ctx.save_for_backward(power, levels, floor)
        ctx.amin = amin
        return levels.maximum(floor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        power, levels, floor = ctx.saved_tensors
        kept = levels >= floor
        of_levels = (grad * kept).flatten()
        of_levels[levels.argmax()] += (grad * ~kept).sum()
        return of_levels.view_as(grad) * _level_slope(power, ctx.amin), None, None


class DecibelsConstantFloor(Decibels):
    """The floor counts as a constant, although it moves with the loudest entry."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        power, levels, floor = ctx.saved_tensors
        return grad * (levels >= floor) * _level_slope(power, ctx.amin), None, None


def _level_slope(power: Tensor, amin: float) -> Tensor:
    loud = power > amin
    return 10 / torch.log(torch.tensor(10.0, dtype=power.dtype)) * loud / power.where(loud, 1)


class ScaledDropout(Function):
    """x where keep is True, divided by 1 - p, else 0; all is 0 if p is 1: (...), (...) -> (...)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor, p: float) -> Tensor:
        if keep.dtype != torch.bool or keep.shape != x.shape or not 0 <= p <= 1:
            raise ValueError("keep must be boolean and have the shape of x, and p be in [0, 1]")
        ctx.save_for_backward(keep)
        ctx.p = p
        return torch.zeros_like(x) if p == 1 else x * keep / (1 - p)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return torch.zeros_like(grad) if ctx.p == 1 else grad * keep / (1 - ctx.p), None, None


class ScaledDropoutDivided(ScaledDropout):
    """Backward divides by 1 - p also where it is 0."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return grad * keep / (1 - ctx.p), None, None


def _complex(seed: int, *shape: int) -> Tensor:
    return torch.complex(normal(seed, *shape), normal(seed + 1, *shape)).detach().requires_grad_()


LATER_SIGNALS = (
    Hidden(
        name="fourier transform",
        change="arguments",
        wrong=FourierTransformUnscaled,
        right=FourierTransform,
        inputs=lambda: (_complex(130, 2, 4), "backward"),
        shows_at=lambda: (_complex(130, 2, 4), "ortho"),
    ),
    Hidden(
        name="haar wavelet",
        change="sizes",
        wrong=HaarWaveletCropped,
        right=HaarWavelet,
        inputs=lambda: (normal(132, 2, 8),),
        shows_at=lambda: (normal(132, 2, 7),),
    ),
    Hidden(
        name="decibels",
        change="constants",
        wrong=DecibelsConstantFloor,
        right=Decibels,
        inputs=lambda: (uniform(133, 0.1, 2.0, 2, 3), 1e-10, 80.0),
        shows_at=lambda: (numbers(0.5, 1e-10, 2.0), 1e-10, 80.0),
    ),
    Hidden(
        name="dropout",
        change="arguments",
        wrong=ScaledDropoutDivided,
        right=ScaledDropout,
        inputs=lambda: (normal(134, 2, 3), torch.tensor([[True, False, True], [True, True, False]]), 0.5),
        shows_at=lambda: (normal(134, 2, 3), torch.tensor([[True, False, True], [True, True, False]]), 1.0),
    ),
)
