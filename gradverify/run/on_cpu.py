"""Move what a function is called with to the CPU."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradverify.nested import map_tensors


def moved_to_cpu(value: Any) -> Any:
    """Return a module, or all tensors inside nested lists, tuples and dicts, on the CPU; the given ones stay."""
    if not isinstance(value, torch.nn.Module):
        return map_tensors(value, _moved)
    parameters = {
        id(each): torch.nn.Parameter(each.cpu(), each.requires_grad) for each in value.parameters() if not is_lazy(each)
    }
    buffers = {id(each): _moved(each) for each in value.buffers() if not is_lazy(each)}
    return copy.deepcopy(value, {**parameters, **buffers})


def _moved(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_cpu else tensor.detach().cpu().requires_grad_(tensor.requires_grad)
