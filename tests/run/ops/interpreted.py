"""Reads the environment when it is imported, as Triton's decorators do."""

from __future__ import annotations

import os

from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def scaled(x: Tensor) -> Tensor:
    return x * (2.0 if INTERPRETED else 1.0)


def plain(x: Tensor) -> Tensor:
    return x * 2.0
