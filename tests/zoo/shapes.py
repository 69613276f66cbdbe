"""Several outputs, nested outputs, broadcasting, empty and 0-dim tensors, and arguments that are no tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.zoo.specimen import Specimen, at, fixed, integers, normal, specimen

_O, _B = "multi-output", "broadcast"


def _nested(x: Tensor, y: Tensor) -> Any:
    return {"a": x * y, "b": [x.sin(), (y.cos(), x.sum())]}


SHAPES: tuple[Specimen, ...] = (
    specimen("two outputs", lambda x: (x.sin(), x.cos()), _O, x=normal(3)),
    specimen("nested outputs", _nested, _O, x=normal(2), y=normal(2)),
    specimen("output and indices", lambda x: torch.max(x, 1), _O, x=normal(3, 4)),
    specimen("output that is constant", lambda x: (x.sin(), torch.ones(2)), _O, x=normal(3)),
    specimen("unused input", lambda x, y: x.sin(), _O, x=normal(3), y=normal(2)),
    specimen("eigenvalues and trace", lambda x: (torch.linalg.eigvalsh(x + x.mT), x.trace()), _O, x=normal(2, 2)),
    specimen("mean and variance", lambda x: torch.var_mean(x, 0), _O, x=normal(4, 2)),
    specimen("list of inputs", lambda xs: torch.cat(xs).prod(), _O, xs=lambda g: [normal(2)(g), normal(3)(g)]),
    specimen("dict of inputs", lambda p: p["w"] @ p["x"], _O, p=lambda g: {"w": normal(2, 3)(g), "x": normal(3)(g)}),
    specimen("split", lambda x: x.square().split([1, 3]), _O, x=normal(4)),
    specimen("same tensor twice in", lambda x: x * x.flip(0), _O, x=normal(4)),
    specimen("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), _O, x=normal(2), y=normal(3)),
    specimen("row plus column", lambda x, y: x * y + x, _B, x=normal(3, 1), y=normal(4)),
    specimen("scalar times matrix", lambda s, x: s * x, _B, s=at(2.0), x=normal(3, 2)),
    specimen("bias over batch and space", lambda x, b: x.tanh() + b[:, None], _B, x=normal(2, 3, 2), b=normal(3)),
    specimen("size-1 dimensions", lambda x, y: (x / y.exp()).squeeze(), _B, x=normal(1, 3, 1), y=normal(1, 1, 2)),
    specimen("broadcast matmul", torch.matmul, _B, a=normal(2, 1, 2, 2), b=normal(3, 2, 1)),
    specimen(
        "expanded input",
        lambda x: x.square(),
        _B,
        x=lambda g: torch.randn(1, 3, generator=g).double().expand(2, 3).requires_grad_(),
    ),
    specimen("0-dim", torch.sin, _B, x=at(0.7)),
    specimen("0-dim with 0-dim", torch.atan2, _B, y=at(0.7), x=at(-0.3)),
    specimen("no elements", torch.sin, _B, "empty", x=normal(0), inconclusive="nothing is compared"),
    specimen(
        "no elements in one input", lambda x, y: torch.cat([x.sin(), y.cos()]), _B, "empty", x=normal(0), y=normal(3)
    ),
    specimen("sum over no elements", lambda x, y: x.sum() + y.sum(), _B, "empty", x=normal(0, 3), y=normal(2)),
    specimen("one output without elements", lambda x: (x.sin(), x[:0]), _B, "empty", x=normal(2)),
    specimen("integer power", lambda x, n: x**n, _O, "integers", x=normal(3, shift=3), n=fixed(0, 1, 3)),
    specimen(
        "python arguments",
        lambda x, n, mode, flag: x.pow(n).mean() if flag else x,
        _O,
        x=normal(3),
        n=3,
        mode="mean",
        flag=True,
    ),
    specimen(
        "bool argument selects",
        lambda x, m: torch.where(m, x.exp(), x),
        _O,
        "bools",
        x=normal(3),
        m=fixed(True, False, True),
    ),
    specimen("index and weight", lambda w, i: w[i].prod(), _O, "integers", w=normal(4), i=integers(4, 3)),
    specimen(
        "transposed input",
        lambda x: x.cumsum(1) * x,
        _B,
        x=lambda g: torch.randn(3, 2, generator=g).double().T.requires_grad_(),
    ),
    specimen(
        "sliced input", lambda x: x.sin(), _B, x=lambda g: torch.randn(6, generator=g).double()[::2].requires_grad_()
    ),
    specimen("overwrites a copy of its input", lambda x: x.clone().mul_(2).sin_(), _B, x=normal(3)),
    specimen("overwrites its input", lambda x: x.mul_(3).exp(), _B, x=normal(3)),
    specimen(
        "one output, many inputs",
        lambda *xs: sum(x.sin().prod() for x in xs),
        _O,
        **{f"x{k}": normal(2) for k in range(6)},
    ),
)
