"""Attention in blocks: the matrix of scores is never stored, and backward computes its blocks again.

The algorithm is that of Dao et al., FlashAttention (2022): online softmax in forward; in backward one kernel for the
gradient by q and one for those by k and v, so that no program writes what another one writes.
"""

import math

import torch
import triton
import triton.language as tl
from blocks import block_of
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

_BLOCK = 32  # queries or keys per tile
_LEAST_WIDTH = 16  # tl.dot takes no narrower tiles


class Attention(torch.autograd.Function):
    """softmax(q kᵀ / √channels) v, each of shape (batch, heads, positions, channels)."""

    @staticmethod
    def forward(ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out, logsumexp = attention_forward(q, k, v, causal)
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.causal = causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, out, logsumexp = ctx.saved_tensors
        grad = grad.contiguous()
        return *attention_backward(q, k, v, grad, logsumexp, dots_of_rows(out, grad), ctx.causal), None


def attention_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Return the output, and the logsumexp of each row of scores in float32."""
    batch, heads, positions, channels = q.shape
    out = torch.empty_like(q)
    logsumexp = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(positions, _BLOCK), batch * heads)
    _forward[grid](
        q, k, v, out, logsumexp, 1 / math.sqrt(channels), positions, channels, **_constants(channels, causal)
    )
    return out, logsumexp


def dots_of_rows(out: Tensor, grad: Tensor) -> Tensor:
    """Return the dot product of each row of the output with its cotangent in float32."""
    return (out.float() * grad.float()).sum(dim=-1)


def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, logsumexp: Tensor, dots: Tensor, causal: bool, shift: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients by q, k and v. If causal, query i sees the keys up to i - shift."""
    batch, heads, positions, channels = q.shape
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    grid = (triton.cdiv(positions, _BLOCK), batch * heads)
    sizes = (1 / math.sqrt(channels), positions, channels)
    constants = {**_constants(channels, causal), "SHIFT": shift}
    _backward_queries[grid](q, k, v, grad, logsumexp, dots, dq, *sizes, **constants)
    _backward_keys[grid](q, k, v, grad, logsumexp, dots, dk, dv, *sizes, **constants)
    return dq, dk, dv


def _constants(channels: int, causal: bool) -> dict[str, int | bool]:
    return {"CAUSAL": causal, "WIDTH": max(block_of(channels), _LEAST_WIDTH), "BLOCK": _BLOCK}


@triton.jit
def _tile(ptr, head, position, positions, channels, WIDTH: tl.constexpr):
    """Load rows of a head, of shape (len(position), WIDTH), with 0 outside."""
    channel = tl.arange(0, WIDTH)
    place = (head * positions + position[:, None]) * channels + channel[None, :]
    return tl.load(ptr + place, mask=(position[:, None] < positions) & (channel[None, :] < channels), other=0.0)


@triton.jit
def _store_tile(ptr, value, head, position, positions, channels, WIDTH: tl.constexpr):
    channel = tl.arange(0, WIDTH)
    place = (head * positions + position[:, None]) * channels + channel[None, :]
    mask = (position[:, None] < positions) & (channel[None, :] < channels)
    tl.store(ptr + place, value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _visible(query, key, positions, CAUSAL: tl.constexpr, SHIFT: tl.constexpr):
    """Mask of shape (queries, keys), True where the query sees the key."""
    mask = (query[:, None] < positions) & (key[None, :] < positions)
    if CAUSAL:
        mask = mask & (key[None, :] + SHIFT <= query[:, None])
    return mask


@triton.jit
def _forward(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    logsumexp_ptr,
    scale,
    positions,
    channels,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    query = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = _tile(q_ptr, head, query, positions, channels, WIDTH)
    peak = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    out = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    for first in range(0, positions, BLOCK):
        key = first + tl.arange(0, BLOCK)
        k = _tile(k_ptr, head, key, positions, channels, WIDTH)
        v = _tile(v_ptr, head, key, positions, channels, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(_visible(query, key, positions, CAUSAL, 0), scores, float("-inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        # A row without a visible key, as beyond the end, has the peak -inf, and -inf - -inf is no number.
        origin = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(scores - origin[:, None])
        shrink = tl.exp(peak - origin)
        total = total * shrink + tl.sum(p, axis=1)
        out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        peak = higher
    total = tl.where(query < positions, total, 1.0)
    _store_tile(out_ptr, out / total[:, None], head, query, positions, channels, WIDTH)
    tl.store(logsumexp_ptr + head * positions + query, peak + tl.log(total), mask=query < positions)


@triton.jit
def _backward_queries(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_ptr,
    logsumexp_ptr,
    dots_ptr,
    dq_ptr,
    scale,
    positions,
    channels,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SHIFT: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    query = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = _tile(q_ptr, head, query, positions, channels, WIDTH)
    grad = _tile(grad_ptr, head, query, positions, channels, WIDTH)
    logsumexp = tl.load(logsumexp_ptr + head * positions + query, mask=query < positions, other=0.0)
    dots = tl.load(dots_ptr + head * positions + query, mask=query < positions, other=0.0)
    dq = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    for first in range(0, positions, BLOCK):
        key = first + tl.arange(0, BLOCK)
        k = _tile(k_ptr, head, key, positions, channels, WIDTH)
        v = _tile(v_ptr, head, key, positions, channels, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        visible = _visible(query, key, positions, CAUSAL, SHIFT)
        p = tl.where(visible, tl.exp(scores - logsumexp[:, None]), 0.0)
        ds = p * (tl.dot(grad, tl.trans(v), input_precision="ieee") - dots[:, None])
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    _store_tile(dq_ptr, dq * scale, head, query, positions, channels, WIDTH)


@triton.jit
def _backward_keys(
    q_ptr,
    k_ptr,
    v_ptr,
    grad_ptr,
    logsumexp_ptr,
    dots_ptr,
    dk_ptr,
    dv_ptr,
    scale,
    positions,
    channels,
    CAUSAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SHIFT: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    key = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = _tile(k_ptr, head, key, positions, channels, WIDTH)
    v = _tile(v_ptr, head, key, positions, channels, WIDTH)
    dk = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    dv = tl.zeros([BLOCK, WIDTH], dtype=tl.float32)
    for first in range(0, positions, BLOCK):
        query = first + tl.arange(0, BLOCK)
        q = _tile(q_ptr, head, query, positions, channels, WIDTH)
        grad = _tile(grad_ptr, head, query, positions, channels, WIDTH)
        logsumexp = tl.load(logsumexp_ptr + head * positions + query, mask=query < positions, other=0.0)
        dots = tl.load(dots_ptr + head * positions + query, mask=query < positions, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        visible = _visible(query, key, positions, CAUSAL, SHIFT)
        p = tl.where(visible, tl.exp(scores - logsumexp[:, None]), 0.0)
        dv += tl.dot(tl.trans(p.to(grad.dtype)), grad, input_precision="ieee")
        ds = p * (tl.dot(grad, tl.trans(v), input_precision="ieee") - dots[:, None])
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    _store_tile(dk_ptr, dk * scale, head, key, positions, channels, WIDTH)
    _store_tile(dv_ptr, dv, head, key, positions, channels, WIDTH)
