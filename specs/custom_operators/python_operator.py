"""An operator that is registered from Python with its gradient, and one that breaks a promise of its schema."""

import torch
from torch import Tensor


@torch.library.custom_op("gradverify_specs::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) * weight along the rows of a matrix, computed in float32 or finer."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return (_normed(x.to(wide), eps) * weight.to(wide)).to(x.dtype)


@torch.library.custom_op("gradverify_specs::careless_rms_norm", mutates_args=())
def careless_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same, and the fake implementation below forgets all rows but one."""
    return rms_norm(x, weight, eps)


@rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


@careless_rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x[:1])


def _setup_context(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, Tensor, float], output: Tensor
) -> None:
    x, weight, eps = inputs
    ctx.save_for_backward(x, weight)
    ctx.eps = eps


def _backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight = ctx.saved_tensors
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide, slope = x.to(dtype), grad.to(dtype)
    normed = _normed(wide, ctx.eps)
    scale = ((wide * wide).mean(dim=-1, keepdim=True) + ctx.eps).rsqrt()
    weighted = slope * weight.to(dtype)
    dx = scale * (weighted - normed * (weighted * normed).mean(dim=-1, keepdim=True))
    return dx.to(x.dtype), (slope * normed).sum(dim=0).to(weight.dtype), None


def _normed(x: Tensor, eps: float) -> Tensor:
    return x * ((x * x).mean(dim=-1, keepdim=True) + eps).rsqrt()


rms_norm.register_autograd(_backward, setup_context=_setup_context)
careless_rms_norm.register_autograd(_backward, setup_context=_setup_context)
