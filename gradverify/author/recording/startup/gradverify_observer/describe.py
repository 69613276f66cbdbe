"""Arguments of a call as plain values, which JSON has words for."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from gradverify_observer.objects import recipe_of
from gradverify_observer.subjects import is_spread

_TRACING = ("FakeTensor", "FunctionalTensor")  # stand for tensors while torch traces code
_MOST_NESTED = 6  # lists in lists


def described(value: Any) -> dict[str, Any]:
    """Return an argument: a tensor, a list of tensors, a plain value, or what it is if it is none of them."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return _tensor(torch, value)
    if type(value) is torch.Size:
        return {"size": list(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).replace("torch.", "")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    entries = list(value) if isinstance(value, (list, tuple)) else []
    if any(isinstance(entry, torch.Tensor) for entry in entries):
        return {"list": [described(entry) for entry in entries], "spread": is_spread(value)}
    try:
        return {"plain": _plain(value)}
    except TypeError:
        recipe = recipe_of(value, lambda held: _plain(held, 1))
        return {"other": _kind(value)} if recipe is None else {"plain": recipe}


def tensors_in(given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a call with its name, `xs[1]` for one in a list."""
    torch = sys.modules["torch"]
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (list, tuple)):
            for number, entry in enumerate(value):
                if isinstance(entry, torch.Tensor):
                    yield f"{name}[{number}]", entry


def is_traced(given: Mapping[str, Any]) -> bool:
    """True if some tensor has no values: torch is tracing."""
    return any(_has_no_values(tensor) for _, tensor in tensors_in(given))


def _has_no_values(tensor: Any) -> bool:
    is_stand_in = tensor.device.type == "meta" or type(tensor).__name__ in _TRACING
    return is_stand_in or any(type(size) is not int for size in tensor.shape)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as YAML has words for it; a tuple is `{"tuple": […]}`. Raises TypeError."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float):  # numpy's float64 is one
        return float(value)
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return _plain(value.item(), depth)
    if type(value) is list and depth < _MOST_NESTED:
        return [_plain(entry, depth + 1) for entry in value]
    if isinstance(value, tuple) and depth == 0 and (type(value) is tuple or is_spread(value)):
        entries = [_plain(entry, 1) for entry in value]
        return entries if is_spread(value) else {"tuple": entries}
    raise TypeError


def _kind(value: Any) -> str:
    return getattr(value if isinstance(value, type) else type(value), "__qualname__", "object")


def _tensor(torch: Any, tensor: Any) -> dict[str, Any]:
    if tensor.layout is not torch.strided or tensor.is_quantized or getattr(tensor, "is_nested", False):
        return {"other": _unusual(torch, tensor)}
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).replace("torch.", ""),
        "device": tensor.device.type,
        "layout": _layout(torch, tensor),
        "grad": bool(tensor.requires_grad),
    }


def _unusual(torch: Any, tensor: Any) -> str:
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).replace('torch.', '').replace('_', ' ')} tensor"
    return "quantised tensor" if tensor.is_quantized else "nested tensor"


def _layout(torch: Any, tensor: Any) -> str:
    shape, strides = tensor.shape, tensor.stride()
    if tensor.is_contiguous():
        return "contiguous"
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides)):  # noqa: B905
        return "expanded"
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if len(shape) in formats and tensor.is_contiguous(memory_format=formats[len(shape)]):
        return "channels_last"
    swapped = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    if len(shape) >= 2 and strides == _contiguous_strides(shape, swapped):
        return "transposed"
    return "strided"


def _contiguous_strides(shape: Any, order: list[int]) -> tuple[int, ...]:
    """Return the strides of a tensor that is contiguous if its dimensions stand in this order."""
    return tuple(math.prod(shape[later] for later in order[order.index(axis) + 1 :]) for axis in range(len(shape)))
