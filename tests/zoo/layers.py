"""Normalisation, attention, convolution, pooling and resampling."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tests.zoo.specimen import Specimen, at, fixed, normal, specimen, uniform

_N, _C = "normalisation", "convolution"


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


def _masked(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask, -torch.inf).softmax(-1)


NORMALISATIONS: tuple[Specimen, ...] = (
    specimen(
        "layer norm", lambda x, w, b: functional.layer_norm(x, (4,), w, b), _N, x=normal(2, 4), w=normal(4), b=normal(4)
    ),
    specimen(
        "layer norm of a nearly constant row",
        lambda x: functional.layer_norm(x, (4,)),
        _N,
        x=normal(1, 4, scale=1e-4, shift=1.0),
    ),
    specimen(
        "layer norm of equal values",
        lambda x: functional.layer_norm(x, (3,)),
        _N,
        x=at([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]),
    ),
    specimen("layer norm far from zero", lambda x: functional.layer_norm(x, (4,)), _N, x=normal(1, 4, shift=1e4)),
    specimen(
        "batch norm",
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        _N,
        x=normal(4, 2),
        w=normal(2),
        b=normal(2),
    ),
    specimen(
        "batch norm in eval mode",
        lambda x, w, b: functional.batch_norm(x, torch.zeros(2).double(), torch.ones(2).double(), w, b),
        _N,
        x=normal(3, 2),
        w=normal(2),
        b=normal(2),
    ),
    specimen("group norm", lambda x: functional.group_norm(x, 2), _N, x=normal(2, 4, 2)),
    specimen("instance norm", functional.instance_norm, _N, x=normal(2, 2, 4)),
    specimen(
        "rms norm",
        lambda x, w: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w,
        _N,
        x=normal(2, 4),
        w=normal(4),
    ),
    specimen(
        "rms norm at zero", lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt(), _N, x=at([0.0, 0.0, 0.0])
    ),
    specimen(
        "rms norm at zero beside ordinary",
        lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt(),
        _N,
        x=at([0.0, 0.0], [1.0, 2.0]),
    ),
    specimen("local response norm", lambda x: functional.local_response_norm(x, 2), _N, x=normal(1, 4, 3)),
    specimen("weight norm", lambda v, g: g * v / v.norm(dim=1, keepdim=True), _N, v=normal(3, 4), g=normal(3, 1)),
    specimen("softmax", lambda x: x.softmax(-1), _N, x=normal(2, 4)),
    specimen("softmax of large logits", lambda x: x.softmax(-1), _N, "saturated", x=at(0.0, 10.0, 20.0)),
    specimen("softmax saturated", lambda x: x.softmax(-1), _N, "saturated", x=at(0.0, 50.0, -50.0, 1.0)),
    specimen("log softmax", lambda x: x.log_softmax(-1), _N, x=normal(2, 4, scale=5)),
    specimen(
        "masked softmax with -inf",
        _masked,
        _N,
        x=normal(2, 4),
        mask=fixed([[False, True, False, False], [False, False, True, True]]),
    ),
    specimen("softmin", lambda x: functional.softmin(x, -1), _N, x=normal(5)),
    specimen(
        "gumbel softmax with fixed noise",
        lambda x, n: ((x + n) / 0.3).softmax(-1),
        _N,
        x=normal(4),
        n=fixed(0.1, 0.5, -0.4, 1.0, dtype=torch.float64),
    ),
    specimen("attention", _attention, _N, q=normal(3, 4), k=normal(3, 4), v=normal(3, 2)),
    specimen(
        "torch's attention",
        functional.scaled_dot_product_attention,
        _N,
        q=normal(1, 3, 4),
        k=normal(1, 3, 4),
        v=normal(1, 3, 2),
    ),
    specimen(
        "causal attention",
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        _N,
        q=normal(1, 3, 2),
        k=normal(1, 3, 2),
        v=normal(1, 3, 2),
    ),
    specimen(
        "rotary embedding",
        lambda x, a: torch.cat(
            [x[..., :2] * a.cos() - x[..., 2:] * a.sin(), x[..., 2:] * a.cos() + x[..., :2] * a.sin()], -1
        ),
        _N,
        x=normal(3, 4),
        a=normal(3, 2),
    ),
    specimen("glu", functional.glu, _N, x=normal(3, 4)),
    specimen(
        "swiglu", lambda x, w, v: functional.silu(x @ w) * (x @ v), _N, x=normal(2, 3), w=normal(3, 2), v=normal(3, 2)
    ),
    specimen(
        "gru cell", lambda x, h, w, u: _gru(x, h, w, u), _N, x=normal(2), h=normal(2), w=normal(6, 2), u=normal(6, 2)
    ),
)

CONVOLUTIONS: tuple[Specimen, ...] = (
    specimen("conv1d", functional.conv1d, _C, x=normal(1, 2, 6), w=normal(2, 2, 3), b=normal(2)),
    specimen(
        "conv2d with stride and padding",
        lambda x, w: functional.conv2d(x, w, stride=2, padding=1),
        _C,
        x=normal(1, 2, 4, 4),
        w=normal(2, 2, 3, 3),
    ),
    specimen(
        "depthwise conv", lambda x, w: functional.conv1d(x, w, groups=2), _C, x=normal(1, 2, 5), w=normal(2, 1, 3)
    ),
    specimen(
        "dilated conv", lambda x, w: functional.conv1d(x, w, dilation=2), _C, x=normal(1, 1, 7), w=normal(1, 1, 3)
    ),
    specimen(
        "transposed conv",
        lambda x, w: functional.conv_transpose1d(x, w, stride=2),
        _C,
        x=normal(1, 2, 3),
        w=normal(2, 1, 3),
    ),
    specimen("conv3d", functional.conv3d, _C, x=normal(1, 1, 2, 3, 2), w=normal(1, 1, 2, 2, 1)),
    specimen("average pooling", lambda x: functional.avg_pool2d(x, 2), _C, x=normal(1, 1, 4, 4)),
    specimen("max pooling", lambda x: functional.max_pool2d(x, 2), _C, x=normal(1, 1, 4, 4)),
    specimen("max pooling with overlap", lambda x: functional.max_pool1d(x, 3, 1, 1), _C, x=normal(1, 1, 7)),
    specimen("adaptive pooling", lambda x: functional.adaptive_avg_pool1d(x, 3), _C, x=normal(1, 2, 5)),
    specimen("3-norm pooling", lambda x: functional.lp_pool1d(x, 3.0, 2), _C, x=uniform(0.2, 2, 1, 1, 6)),
    specimen("unfold", lambda x: functional.unfold(x, 2), _C, x=normal(1, 1, 3, 3)),
    specimen("fold", lambda x: functional.fold(x, (3, 3), 2), _C, x=normal(1, 4, 4)),
    specimen(
        "bilinear resize", lambda x: functional.interpolate(x, size=(5, 3), mode="bilinear"), _C, x=normal(1, 1, 3, 3)
    ),
    specimen(
        "bicubic resize",
        lambda x: functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
        _C,
        x=normal(1, 1, 4, 4),
    ),
    specimen("nearest resize", lambda x: functional.interpolate(x, scale_factor=2.0), _C, x=normal(1, 1, 2, 3)),
    specimen(
        "grid sample",
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        _C,
        x=normal(1, 1, 4, 4),
        g=uniform(-0.7, 0.7, 1, 2, 2, 2),
    ),
    specimen(
        "bicubic grid sample",
        lambda x, g: functional.grid_sample(x, g, mode="bicubic", align_corners=True),
        _C,
        x=normal(1, 1, 4, 4),
        g=uniform(-0.7, 0.7, 1, 2, 1, 2),
    ),
    specimen(
        "affine grid", lambda t: functional.affine_grid(t, [1, 1, 3, 2], align_corners=False), _C, t=normal(1, 2, 3)
    ),
    specimen("pixel shuffle", lambda x: functional.pixel_shuffle(x, 2), _C, x=normal(1, 4, 2, 2)),
    specimen("reflection padding", lambda x: functional.pad(x, (2, 1), mode="reflect"), _C, x=normal(1, 1, 4)),
    specimen("circular padding", lambda x: functional.pad(x, (2, 1), mode="circular"), _C, x=normal(1, 1, 4)),
    specimen("prelu away from zero", functional.prelu, _C, x=at([[1.0, -2.0], [0.5, -0.3]]), w=at([0.25])),
)


def _gru(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    a, b = w @ x, u @ h
    reset, update = (a[:2] + b[:2]).sigmoid(), (a[2:4] + b[2:4]).sigmoid()
    return (1 - update) * (a[4:] + reset * b[4:]).tanh() + update * h
