"""Sums over windows of which the mistake, or the crash, shows only at other arguments than those in specs."""

import os
import time
from pathlib import Path

import torch


class Pool(torch.autograd.Function):
    """Backward gives an entry that several windows share the gradient of the last one."""

    @staticmethod
    def forward(ctx, x, size, stride):
        ctx.shape, ctx.size, ctx.stride = x.shape, size, stride
        return x.unfold(-1, size, stride).sum(-1)

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_zeros(ctx.shape)
        for window in range(grad.shape[-1]):
            start = window * ctx.stride
            out[..., start : start + ctx.size] = grad[..., window : window + 1]
        return out, None, None


class RightPool(Pool):
    @staticmethod
    def backward(ctx, grad):
        out = grad.new_zeros(ctx.shape)
        for window in range(grad.shape[-1]):
            start = window * ctx.stride
            out[..., start : start + ctx.size] += grad[..., window : window + 1]
        return out, None, None


class DetachedPool(Pool):
    """Its backward has no derivative by the cotangent either."""

    @staticmethod
    def backward(ctx, grad):
        return Pool.backward(ctx, grad.detach())


class EndsAndHangs(Pool):
    """Ends its process at stride 3, and hangs at windows of one entry."""

    @staticmethod
    def forward(ctx, x, size, stride):
        if stride == 3:
            os.abort()
        if size == 1:
            time.sleep(60)
        return Pool.forward(ctx, x, size, stride)


class HangsOutside(RightPool):
    """Hangs at each argument but those in the spec, after it has made a file."""

    @staticmethod
    def forward(ctx, x, size, stride):
        if (size, stride) != (2, 2):
            Path("hangs").touch()
            time.sleep(60)
        return Pool.forward(ctx, x, size, stride)


class HangsWhenLarger(Pool):
    """Hangs for more columns than those in the spec, after it has made a file."""

    @staticmethod
    def forward(ctx, x, size, stride):
        if x.shape[-1] > 6:
            Path("hangs").touch()
            time.sleep(60)
        return Pool.forward(ctx, x, size, stride)


class OnlySmallWindows(RightPool):
    @staticmethod
    def backward(ctx, grad):
        if ctx.size > 2:
            raise ValueError("only windows of one or two entries")
        return RightPool.backward(ctx, grad)


class WrongFarAway(torch.autograd.Function):
    """Backward is wrong for entries above ten million."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.where(x.abs() > 1e7, grad, 2 * grad)


class Branches(Pool):
    """Takes a branch of its own for windows of three entries, which are tried before others."""

    @staticmethod
    def forward(ctx, x, size, stride):
        if size == 3:
            x = x * 1.0
        return Pool.forward(ctx, x, size, stride)


class Product(torch.autograd.Function):
    """A matrix product whose backward by w takes the first of several matrices where it should sum."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        by_w = x.mT @ grad
        return grad @ w.mT, by_w[0] if by_w.ndim == 3 else by_w
