"""SwiGLU, the gated activation of many language models, entry by entry."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

BLOCK = 256


class SwiGLU(torch.autograd.Function):
    """silu(gate) * up, where silu(x) = x * sigmoid(x)."""

    @staticmethod
    def forward(ctx: FunctionCtx, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return swiglu_forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        return swiglu_backward(gate, up, grad.contiguous(), triton.cdiv(gate.numel(), BLOCK))


def swiglu_forward(gate: Tensor, up: Tensor) -> Tensor:
    """Return the output for contiguous inputs of one shape."""
    y = torch.empty_like(gate)
    count = gate.numel()
    _forward[(triton.cdiv(count, BLOCK),)](gate, up, y, count, BLOCK=BLOCK)
    return y


def swiglu_backward(gate: Tensor, up: Tensor, grad: Tensor, programs: int) -> tuple[Tensor, Tensor]:
    """Return the gradients by gate and up. Each program writes one block; an entry that none writes is 0."""
    dgate, dup = torch.zeros_like(gate), torch.zeros_like(up)
    _backward[(programs,)](gate, up, grad, dgate, dup, gate.numel(), BLOCK=BLOCK)
    return dgate, dup


@triton.jit
def _forward(gate_ptr, up_ptr, y_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    gate = tl.load(gate_ptr + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    y = gate * tl.sigmoid(gate) * up
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward(gate_ptr, up_ptr, grad_ptr, dgate_ptr, dup_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    gate = tl.load(gate_ptr + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + place, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + place, mask=inside, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    dgate = grad * up * sigmoid * (1 + gate * (1 - sigmoid))
    dup = grad * gate * sigmoid
    tl.store(dgate_ptr + place, dgate.to(dgate_ptr.dtype.element_ty), mask=inside)
    tl.store(dup_ptr + place, dup.to(dup_ptr.dtype.element_ty), mask=inside)
