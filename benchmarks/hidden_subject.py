"""A Function with a mistake that its usual inputs do not show, and what its files share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor
from torch.autograd import Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """A wrong Function, its right twin, inputs at which both pass, and one at which only the right twin does."""

    name: str
    change: str  # kind of change that makes the mistake show: arguments, indices, constants, zeros, ties, ...
    wrong: type[Function]
    right: type[Function]  # same forward
    inputs: Callable[[], tuple[Any, ...]]  # positional arguments that a user would write
    shows_at: Callable[[], tuple[Any, ...]]  # legal arguments at which `wrong` fails and `right` passes
    declared: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments for gradverify.explore


def normal(seed: int, *shape: int) -> Tensor:
    """Return standard normal values in float64 that require grad."""
    values = torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)
    return values.requires_grad_()


def uniform(seed: int, low: float, high: float, *shape: int) -> Tensor:
    """Return values in [low, high) in float64 that require grad."""
    values = torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)
    return (low + (high - low) * values).requires_grad_()


def numbers(*values: Any) -> Tensor:
    """Return these numbers, or rows of numbers, in float64; they require grad."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)
