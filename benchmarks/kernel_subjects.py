"""Right kernels: Functions that compute in float32 and round to the dtype of their inputs, and float64 references."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd import Function

from gradverify.run.triton_interpreter import set_up, why_not_interpreted

Make = Callable[[int, int, Generator], tuple[Tensor, ...]]  # (rows, columns, generator) -> inputs in float64
_BLOCK = 32  # rows that a program adds up before the next block

# rows x columns; odd: the blocks of 32 and 128 plus and minus one
SIZES = {"small": (5, 37), "odd -1": (31, 127), "odd +1": (33, 129), "large": (1024, 768)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSubject:
    """A right kernel, and plain code for the same function."""

    name: str
    function: Callable[..., Tensor]
    reference: Callable[..., Tensor]
    inputs: Make
    sizes: tuple[str, ...] = tuple(SIZES)


class _InFloat32(Function):
    """Run `forward` and `backward` in float32; outputs and gradients are rounded to the dtype of the first input."""

    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, *inputs: Tensor) -> Tensor:
        output = forward(*(each.float() for each in inputs)).to(inputs[0].dtype)
        ctx.backward_of = backward
        ctx.save_for_backward(output, *inputs)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        output, *inputs = ctx.saved_tensors
        found = ctx.backward_of(output.float(), grad.float(), *(each.float() for each in inputs))
        return None, None, *(each.to(wanted.dtype) for each, wanted in zip(found, inputs, strict=True))


def plain_subjects() -> Iterator[KernelSubject]:
    """Yield the kernels in plain torch."""
    for name, (forward, backward, inputs) in _PLAIN.items():
        function = partial(_InFloat32.apply, forward, backward)
        yield KernelSubject(name=name, function=function, reference=forward, inputs=inputs)


def triton_subjects() -> Iterator[KernelSubject]:
    """Yield the Triton kernels of specs/kernels, interpreted, at the small size; none without Triton."""
    if why_not_interpreted() is not None:
        return
    set_up()
    folder = str(Path(__file__).parent.parent / "specs" / "kernels")
    sys.path.insert(0, folder)
    try:
        references = import_module("references")
        for module, name, inputs in _TRITON:
            function = getattr(import_module(module), name).apply
            yield KernelSubject(
                name=f"triton {module}",
                function=function,
                reference=getattr(references, module),
                inputs=inputs,
                sizes=("small",),
            )
    finally:
        sys.path.remove(folder)


def _softmax(x: Tensor) -> Tensor:
    e = (x - x.amax(-1, keepdim=True).detach()).exp()
    return e / e.sum(-1, keepdim=True)


def _softmax_backward(y: Tensor, grad: Tensor, _: Tensor) -> tuple[Tensor]:
    return (y * (grad - (y * grad).sum(-1, keepdim=True)),)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return _normed(x)[0] * weight + bias


def _layer_norm_backward(_: Tensor, grad: Tensor, x: Tensor, weight: Tensor, __: Tensor) -> tuple[Tensor, ...]:
    normed, rstd = _normed(x)
    slope = grad * weight
    dx = rstd * (slope - slope.mean(-1, keepdim=True) - normed * (slope * normed).mean(-1, keepdim=True))
    return dx, _sum_of_blocks(grad * normed), _sum_of_blocks(grad)


def _normed(x: Tensor) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(-1, keepdim=True)
    rstd = ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * rstd, rstd


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * _inverse_rms(x) * weight


def _rms_norm_backward(_: Tensor, grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = _inverse_rms(x)
    normed, slope = x * scale, grad * weight
    dx = scale * (slope - normed * (slope * normed).mean(-1, keepdim=True))
    return dx, _sum_of_blocks(grad * normed)


def _inverse_rms(x: Tensor) -> Tensor:
    return ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt()


def _cross_entropy(logits: Tensor) -> Tensor:
    rows = torch.arange(len(logits), device=logits.device)
    return (logits.logsumexp(-1) - logits[rows, _targets(logits)]).mean()


def _cross_entropy_backward(_: Tensor, grad: Tensor, logits: Tensor) -> tuple[Tensor]:
    p = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    p[torch.arange(len(logits)), _targets(logits)] -= 1
    return (grad / len(logits) * p,)


def _targets(logits: Tensor) -> Tensor:
    return torch.arange(len(logits), device=logits.device) * 7 % logits.shape[1]


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return gate * gate.sigmoid() * up


def _swiglu_backward(_: Tensor, grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    s = gate.sigmoid()
    return grad * up * s * (1 + gate * (1 - s)), grad * gate * s


def _gelu(x: Tensor) -> Tensor:
    return x * (1 + (x * 0.5**0.5).erf()) / 2


def _gelu_backward(_: Tensor, grad: Tensor, x: Tensor) -> tuple[Tensor]:
    density = (-x * x / 2).exp() * (2 * torch.pi) ** -0.5
    return (grad * ((1 + (x * 0.5**0.5).erf()) / 2 + x * density),)


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight


def _matmul_backward(_: Tensor, grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return grad @ weight.T, x.T @ grad


def _rotary(x: Tensor) -> Tensor:
    return _turned(x, 1.0)


def _rotary_backward(_: Tensor, grad: Tensor, __: Tensor) -> tuple[Tensor]:
    return (_turned(grad, -1.0),)


def _turned(x: Tensor, direction: float) -> Tensor:
    rows, columns = x.shape
    half = columns // 2
    channel = torch.arange(half, device=x.device, dtype=torch.float64)
    angle = torch.arange(rows, device=x.device)[:, None] * 10000.0 ** (-channel / max(half, 1))
    cos, sin = angle.cos().to(x.dtype), direction * angle.sin().to(x.dtype)
    first, second, rest = x[:, :half], x[:, half : 2 * half], x[:, 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _probabilities(q, k) @ v


def _attention_backward(y: Tensor, grad: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    p, scale = _probabilities(q, k), q.shape[-1] ** -0.5
    ds = p * (grad @ v.T - (grad * y).sum(-1, keepdim=True)) * scale
    return ds @ k, ds.T @ q, p.T @ grad


def _probabilities(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.T * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape, dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def _sum_of_blocks(rows: Tensor) -> Tensor:
    """Return the sum over rows, added block after block, as a kernel adds them."""
    total = torch.zeros_like(rows[0])
    for block in rows.split(_BLOCK):
        total = total + block.sum(0)
    return total


def _normal(*shapes: Callable[[int, int], tuple[int, ...]]) -> Make:
    return lambda rows, columns, generator: tuple(
        torch.randn(shape(rows, columns), generator=generator, dtype=torch.float64) for shape in shapes
    )


def _matrix(rows: int, columns: int) -> tuple[int, ...]:
    return rows, columns


def _row(_: int, columns: int) -> tuple[int, ...]:
    return (columns,)


def _narrow(rows: int, columns: int) -> tuple[int, ...]:
    return rows, min(columns, 64)


def _weights(_: int, columns: int) -> tuple[int, ...]:
    return columns, 48


_PLAIN: dict[str, tuple[Callable[..., Tensor], Callable[..., Sequence[Tensor]], Make]] = {
    "softmax": (_softmax, _softmax_backward, _normal(_matrix)),
    "layer norm": (_layer_norm, _layer_norm_backward, _normal(_matrix, _row, _row)),
    "rms norm": (_rms_norm, _rms_norm_backward, _normal(_matrix, _row)),
    "cross entropy": (_cross_entropy, _cross_entropy_backward, _normal(_matrix)),
    "swiglu": (_swiglu, _swiglu_backward, _normal(_matrix, _matrix)),
    "gelu": (_gelu, _gelu_backward, _normal(_matrix)),
    "matmul": (_matmul, _matmul_backward, _normal(_matrix, _weights)),
    "rotary": (_rotary, _rotary_backward, _normal(_matrix)),
    "attention": (_attention, _attention_backward, _normal(_narrow, _narrow, _narrow)),
}


def _heads(rows: int, columns: int) -> tuple[int, ...]:
    return 1, 2, columns, 8 * (rows // 2)


_TRITON: tuple[tuple[str, str, Make], ...] = (
    ("softmax", "Softmax", _normal(_matrix)),
    ("layer_norm", "LayerNorm", _normal(_matrix, _row, _row)),
    ("swiglu", "SwiGLU", _normal(_matrix, _matrix)),
    ("attention", "Attention", _normal(_heads, _heads, _heads)),
)
