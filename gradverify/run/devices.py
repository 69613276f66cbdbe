"""What this machine has to compute on."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def devices_here() -> tuple[str, ...]:
    """Return every device by name, with the model of those that say it."""
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
    """Tell whether there is nothing but the CPU; asking does not set up a GPU."""
    return all(_backend(kind) is None for kind in ("cuda", "xpu", "mps"))


def lack_of(device: str) -> str | None:
    """Return why this machine cannot run on `device`, None where it can."""
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


def _backend(kind: str) -> Any | None:
    """Return torch's module for a kind of device, None where it cannot be used here."""
    backend = getattr(torch, kind, None)
    try:
        return backend if backend is not None and backend.is_available() else None
    except Exception:  # a half-installed driver may raise anything
        return None
