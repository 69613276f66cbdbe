"""The functions of this folder in plain torch. They are differentiable, so torch's autograd gives their gradients."""

import math

import torch
from torch import Tensor


def softmax(x: Tensor) -> Tensor:
    """Softmax along the rows of a matrix."""
    e = (x - x.amax(dim=-1, keepdim=True).detach()).exp()
    return e / e.sum(dim=-1, keepdim=True)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer norm along the rows of a matrix."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """Mean cross entropy over the rows whose target is not `ignore_index`."""
    counted = target != ignore_index
    rows, classes = logits[counted], target[counted]
    chosen = rows.gather(1, classes[:, None]).squeeze(1)
    return (rows.logsumexp(dim=1) - chosen).mean()


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return gate * torch.sigmoid(gate) * up


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotation of channels (i, i + channels / 2) by the angle (position, i)."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
    """softmax(q kᵀ / √channels) v, each of shape (batch, heads, positions, channels)."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
