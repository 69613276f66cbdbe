"""Functions that need something this machine lacks."""

import unittest

import torch


class NeedsHardware(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        raise unittest.SkipTest("there is no such accelerator")


class NeedsHardwareInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        try:
            raise unittest.SkipTest("there is no such accelerator")
        except unittest.SkipTest as error:
            raise RuntimeError("the launch failed") from error
