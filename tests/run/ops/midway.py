"""Functions whose first check is finished before something happens to the process."""

import ctypes
import os

import torch


class Doubled(torch.autograd.Function):
    """Twice the gradient; backward is left to `second` when it is differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @classmethod
    def backward(cls, ctx, grad):
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            cls.second()
        return 2 * grad * x.cos()


class WrongThenHangs(Doubled):
    @staticmethod
    def second():
        ctypes.PyDLL(None).sleep(60)


class WrongThenCrashes(Doubled):
    @staticmethod
    def second():
        os.write(1, b"about to crash\n")
        os.abort()


class WrongThenForks(Doubled):
    @staticmethod
    def second():
        os.fork()


def running(x):
    """Return a sum that is right, and too large to be written down; each call takes 60 ms."""
    ctypes.CDLL(None).usleep(60_000)
    return x.sin().cumsum(0)


class HangsWhenMade(torch.nn.Module):
    def __init__(self):
        super().__init__()
        ctypes.PyDLL(None).sleep(60)

    def forward(self, x):
        return x * x
