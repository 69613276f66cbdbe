"""A module that draws numbers when it is imported, from all three generators."""

import random

import numpy as np
import torch

FACTOR = random.random() + float(np.random.rand()) + float(torch.rand(()))


class Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * FACTOR

    @staticmethod
    def backward(ctx, grad):
        return grad  # wrong, so that the report shows the numeric gradient
