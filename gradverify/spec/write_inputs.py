"""Inputs to the plain values that describe them in a spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradverify.case import (
    Bernoulli,
    DataFile,
    DeviceArgument,
    Distribution,
    DtypeArgument,
    Factory,
    Input,
    Integers,
    Layout,
    Linspace,
    ListInput,
    Normal,
    ObjectInput,
    Origin,
    Permutation,
    SizeArgument,
    Target,
    TensorInput,
    TupleArgument,
    Uniform,
    Values,
)
from gradverify.spec.dims import size_of
from gradverify.spec.readers import BadValueError
from gradverify.spec.target import split_data_file
from gradverify.spec.tensor_keys import TENSOR_DTYPES

_WHOLE = 1e15  # whole numbers below it are written without a point where only floats are read


def plain_input(value: Input, dims: Mapping[str, int], folder: Path | None) -> Any:
    """Return what describes an input; raises ValueError for a value that YAML has no word for."""
    if isinstance(value, TensorInput | ObjectInput):
        return _tensor(value.made if isinstance(value, ObjectInput) else value, dims, folder)
    if isinstance(value, ListInput):
        if not all(isinstance(item, TensorInput) for item in value.items):
            raise ValueError("a list holds tensors and other values")
        return [_tensor(item, dims, folder) for item in value.items]
    if isinstance(value, SizeArgument):
        return {"size": _sizes(value.sizes, value.size, dims)}
    if isinstance(value, TupleArgument):
        return {"tuple": [_without_mappings(item) for item in value.items]}
    if isinstance(value, DtypeArgument):
        if value.name not in TENSOR_DTYPES:
            raise ValueError(f"YAML has no word for torch.{value.name}")
        return {"dtype": value.name}
    if isinstance(value, DeviceArgument):
        return {"device": value.name}
    if isinstance(value.value, tuple):
        return {"tuple": [_without_mappings(item) for item in value.value]}
    return _without_mappings(value.value)


def sizes_in(value: Input) -> tuple[str, ...]:
    """Return the expressions in the shapes and sizes of an input."""
    if isinstance(value, ListInput):
        return tuple(text for item in value.items for text in sizes_in(item))
    sizes = value.sizes if isinstance(value, TensorInput | SizeArgument) else None
    return tuple(entry for entry in sizes or () if isinstance(entry, str))


def target_text(target: Target, folder: Path | None) -> str:
    """Return `path.py:Name`, the path relative to the folder if one is given, or `package.module:Name`."""
    if target.file is None and target.module is None:
        raise ValueError(f"`{target.name}` is in no file and in no module")
    return f"{target.module if target.file is None else path_text(target.file, folder)}:{target.name}"


def path_text(path: str, folder: Path | None) -> str:
    """Return a path relative to a folder; as it is where there is no folder or no way from it."""
    try:
        relative = path if folder is None else os.path.relpath(path, folder)
    except ValueError:  # another drive
        relative = path
    return Path(relative).as_posix()


def short(number: float) -> float:
    """Return a whole number as an int, for places where only floats are read."""
    return int(number) if float(number).is_integer() and abs(number) < _WHOLE else float(number)


def _tensor(value: TensorInput, dims: Mapping[str, int], folder: Path | None) -> dict[str, Any]:
    shape = {} if value.shape is None else {"shape": _sizes(value.sizes, value.shape, dims)}
    origin = _origin(value.origin, folder)
    described = {**shape, **origin} if isinstance(value.origin, Distribution) else {**origin, **shape}
    modifiers = {
        "dtype": value.dtype,
        "requires_grad": value.requires_grad,
        "layout": None if value.layout is Layout.CONTIGUOUS else str(value.layout),
        "avoid": [short(point) for point in value.avoid] or None,
        "constraint": None if value.constraint is None else str(value.constraint),
        "constrained": None if value.constrained else False,
    }
    return described | {key: entry for key, entry in modifiers.items() if entry is not None}


def _sizes(written: tuple[int | str, ...] | None, sizes: tuple[int, ...], dims: Mapping[str, int]) -> list[int | str]:
    """Return sizes as they were written, if they still are what they were."""
    try:
        same = written is not None and sizes == tuple(
            size_of(entry, dims) if isinstance(entry, str) else entry for entry in written
        )
    except BadValueError:
        same = False
    return list(written) if written is not None and same else list(sizes)


def _origin(origin: Origin, folder: Path | None) -> dict[str, Any]:
    if isinstance(origin, Normal):
        return {} if origin == Normal() else {"normal": [short(origin.mean), short(origin.std)]}
    if isinstance(origin, Factory):
        made = {"factory": target_text(origin.target, folder)}
        return made | ({"args": dict(origin.args)} if origin.args else {})
    if isinstance(origin, DataFile):
        file, name = split_data_file(origin.path)
        return {"file": f"{path_text(file, folder)}{f':{name}' if name else ''}"}
    describe: Mapping[type, Callable[[Any], dict[str, Any]]] = {
        Values: lambda it: {"values": _entries(it.values)},
        Uniform: lambda it: {"uniform": [short(it.low), short(it.high)]},
        Integers: lambda it: {"integers": [it.low, it.high]},
        Bernoulli: lambda it: {"bernoulli": short(it.p)},
        Linspace: lambda it: {"linspace": [short(it.start), short(it.end)]},
        Permutation: lambda _: {"permutation": True},
    }
    return describe[type(origin)](origin)


def _entries(values: Any) -> Any:
    """Return nested lists of numbers; complex ones become text."""
    if isinstance(values, list | tuple):
        return [_entries(entry) for entry in values]
    return f"{values.real!r}{values.imag:+}j" if isinstance(values, complex) else values


def _without_mappings(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError("YAML has no word for a mapping among plain values")
    return [_without_mappings(entry) for entry in value] if isinstance(value, list) else value
