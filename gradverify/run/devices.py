"""The devices of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


def available_devices() -> tuple[str, ...]:
    """Return the name of every device, with its model if known: `cuda:0 NVIDIA H100`."""
    found = ["cpu"]
    for kind in ("cuda", "xpu"):
        backend = _backend(kind)
        if backend is not None:
            found += [f"{kind}:{index} {backend.get_device_name(index)}" for index in range(backend.device_count())]
    if _backend("mps") is not None:
        found.append("mps")
    return tuple(found)


@cache
def only_cpu() -> bool:
    """True if the CPU is the only device. Does not initialise a GPU."""
    return all(_backend(kind) is None for kind in ("cuda", "xpu", "mps"))


def why_unavailable(device: str) -> str | None:
    """Return why this machine cannot run on `device`, None if it can."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return None
    backend = _backend(kind)
    if backend is None:
        return f"this machine has no {kind} device that torch {torch.__version__} can use"
    count = backend.device_count()
    if index and int(index) >= count:
        return f"this machine has {count} {kind} device{'s' if count != 1 else ''}, so there is no {device}"
    return None


@contextmanager
def tf32_switched(*, on: bool) -> Iterator[None]:
    """Switch TF32 in matrix products and convolutions on CUDA devices on or off; restored on exit."""
    if _backend("cuda") is None:
        yield
        return
    settings: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [setting.allow_tf32 for setting in settings]
    try:
        for setting in settings:
            setting.allow_tf32 = on
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.allow_tf32 = value


def _backend(kind: str) -> Any | None:
    """Return torch's module for a kind of device, None if it is not available."""
    backend = getattr(torch, kind, None)
    try:
        return backend if backend is not None and backend.is_available() else None
    except Exception:  # a half-installed driver may raise anything
        return None
