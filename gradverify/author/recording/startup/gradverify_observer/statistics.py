"""What kind of values a tensor has, from a sample of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SAMPLE = 4096  # elements
_LINES = 64  # lines along the last dimension that are sorted
_MOST_STRUCTURED = 2**16  # elements of a tensor that is looked at as a whole
_MOST_ENTRIES = 64  # whole numbers that are noted one by one
_NEAR = 1e-3  # relative distance from a sum of one


def statistics(tensor: Any) -> dict[str, Any] | None:
    """Return range, moments and form of the values; None if there are none, or none that can be looked at."""
    torch = sys.modules["torch"]
    with aside(torch):
        values = _unwrapped(torch, tensor.detach())
        if values.numel() == 0 or values.device.type == "meta":
            return None
        if values.is_complex():
            values = torch.view_as_real(values.resolve_conj())
        return _of_whole(torch, values) if not values.is_floating_point() else _of_real(torch, values)


@contextmanager
def aside(torch: Any) -> Iterator[None]:
    """Let the modes that the command has switched on see none of what is computed."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch.no_grad(), torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def _unwrapped(torch: Any, tensor: Any) -> Any:
    """Return the tensor inside those that torch.func puts around it."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _of_real(torch: Any, values: Any) -> dict[str, Any]:
    sample = _sampled(values).to(torch.float64)
    finite = sample[sample.isfinite()]
    found: dict[str, Any] = {"nan": bool(sample.isnan().any()), "inf": bool(sample.isinf().any())}
    if not finite.numel():
        return found
    low, high, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    centred = finite - mean
    variance = float(centred.square().mean())
    fourth = float(centred.square().square().mean())
    return {
        **found,
        "count": finite.numel(),
        "low": low,
        "high": high,
        "mean": mean,
        "std": math.sqrt(variance),
        "tails": fourth / variance**2 if variance > 0 and math.isfinite(fourth) else 0.0,
        "structure": _structure(torch, values) if finite.numel() == sample.numel() else "",
        "whole": bool((finite == finite.round()).all()),
        "sorted": finite.numel() > 2 and low < high and bool((finite.diff() >= 0).all()),
    }


def _structure(torch: Any, values: Any) -> str:
    """Return the set that the values lie in, by its name in a spec; "" if they lie in none that is known."""
    if values.dim() == 0 or values.shape[-1] < 2 or values.numel() > _MOST_STRUCTURED:
        return ""
    exact = values.to(torch.float64)
    if bool((exact >= 0).all()) and bool(((exact.sum(-1) - 1).abs() < _NEAR).all()):
        return "simplex"
    if values.dim() < 2 or values.shape[-1] != values.shape[-2]:
        return ""
    if bool((exact == exact.tril()).all()):
        return "triangular"
    if bool((exact - exact.mT).abs().max() > _NEAR * exact.abs().max()):
        return ""
    return "symmetric" if bool(torch.linalg.cholesky_ex(exact).info.any()) else "positive_definite"


def _of_whole(torch: Any, values: Any) -> dict[str, Any]:
    """Return the range of all whole numbers or truth values, and the form of a sample."""
    sample = _sampled(values).to(torch.int64)
    if values.dtype is torch.bool:
        return {"low": int(values.all()), "high": int(values.any()), "mean": float(sample.double().mean())}
    low, high = (int(end) for end in torch.aminmax(values))
    distinct = int(sample.unique().numel())
    kept = values.to(torch.int64)[values >= 0]
    return {
        "low": low,
        "high": high,
        "least": int(kept.min()) if low < 0 and kept.numel() else low,
        "repeats": distinct < sample.numel(),
        "sorted": sample.numel() > 1 and low < high and bool((sample.diff() >= 0).all()),
        "permutation": _is_permutation(torch, values),
        "entries": values.tolist() if values.dim() and values.numel() <= _MOST_ENTRIES else None,
    }


def _is_permutation(torch: Any, values: Any) -> bool:
    """True if every line along the last dimension has each number below its length once."""
    if values.dim() == 0 or not 1 < values.shape[-1] <= _SAMPLE:
        return False
    ordered = values.reshape(-1, values.shape[-1])[:_LINES].to(torch.int64).sort(-1).values
    return bool((ordered == torch.arange(values.shape[-1], device=values.device)).all())


def _sampled(values: Any) -> Any:
    """Return at most some thousand elements, evenly spread and in order."""
    if values.is_contiguous():
        flat = values.view(-1)
        step = max(1, values.numel() // _SAMPLE)
        while step > 1 and values.dim() and math.gcd(step, values.shape[-1]) > 1:  # else whole columns are left out
            step += 1
        return flat[::step][: 2 * _SAMPLE]
    per_dimension = max(1, int(_SAMPLE ** (1 / max(1, values.dim()))))
    for axis, size in enumerate(values.shape):
        values = values.narrow(axis, 0, min(size, per_dimension))
    return values.reshape(-1)
