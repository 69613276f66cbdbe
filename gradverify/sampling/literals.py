"""Convert numbers in a spec to a tensor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gradverify.errors import InputError


def literal_tensor(values: Any, shape: tuple[int, ...] | None) -> Tensor:
    """Return nested lists of numbers as a bool, int64, float64 or complex128 tensor. Raises InputError."""
    numbers: list[complex] = []
    inferred = _collect(values, (), numbers)
    tensor = torch.tensor(numbers, dtype=_dtype_of(numbers)).reshape(inferred)
    return reshaped(tensor, shape)


def reshaped(tensor: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    """Return `tensor` reshaped to `shape`. Raises InputError if the number of elements differs."""
    if shape is None or tuple(tensor.shape) == shape:
        return tensor
    if math.prod(shape) != tensor.numel():
        raise InputError(f"{tensor.numel():,} values of shape {list(tensor.shape)} do not fit shape {list(shape)}")
    return tensor.reshape(shape)


def _collect(value: Any, path: tuple[int, ...], numbers: list[complex]) -> tuple[int, ...]:
    """Append the numbers in `value` to `numbers`, in order, and return their shape."""
    if not isinstance(value, list | tuple):
        numbers.append(_number(value, path))
        return ()
    shapes = [_collect(entry, (*path, index), numbers) for index, entry in enumerate(value)]
    odd = next((index for index, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise InputError(
            f"{_place((*path, odd))} has shape {list(shapes[odd])}, {_place((*path, 0))} has {list(shapes[0])}"
        )
    return (len(value), *(shapes[0] if shapes else ()))


def _number(value: Any, path: tuple[int, ...]) -> complex:
    if isinstance(value, bool | int | float | complex):
        return value
    try:
        return complex(str(value).replace(" ", "").replace("i", "j") if _looks_imaginary(value) else value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{_place(path)} is `{value}`, not a number") from error


def _looks_imaginary(value: Any) -> bool:
    return isinstance(value, str) and value.rstrip().endswith(("i", "j")) and "inf" not in value


def _dtype_of(numbers: list[complex]) -> torch.dtype:
    kinds = {type(number) for number in numbers}
    if complex in kinds:
        return torch.complex128
    if float in kinds or not kinds:
        return torch.float64
    return torch.int64 if int in kinds else torch.bool


def _place(path: tuple[int, ...]) -> str:
    return "values" + "".join(f"[{index}]" for index in path)
