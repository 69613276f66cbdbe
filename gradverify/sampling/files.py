"""Read tensors from data files, without executing code in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.errors import InputError
from gradverify.paths import shown_path

_WITH_NAME = re.compile(r"(?P<file>.+\.(?:pt|pth|npy|npz)):(?P<name>.+)", re.IGNORECASE | re.DOTALL)


def read_tensor(path: str) -> Tensor:
    """Return the tensor in a .pt, .npy or .npz file, or the named one: `file.npz:name`. Raises InputError."""
    match = _WITH_NAME.fullmatch(path) if not Path(path).exists() else None
    file, name = (match["file"], match["name"]) if match else (path, None)
    reader = _READERS.get(Path(file).suffix.lower())
    if reader is None:
        raise InputError(f"{shown_path(file)}: the name must end in {', '.join(_READERS)}")
    try:
        content = reader(file, name)
    except InputError:
        raise
    except Exception as error:  # reading a damaged file may raise anything
        raise InputError(f"{shown_path(file)}: {_error_text(error)}") from error
    return _as_tensor(content, file).detach()


def _read_torch(file: str, name: str | None) -> Any:
    return _chosen(torch.load(file, map_location="cpu", weights_only=True), file, name)


def _read_array(file: str, name: str | None) -> Any:
    return _chosen(np.load(file, allow_pickle=False), file, name)


def _read_arrays(file: str, name: str | None) -> Any:
    with np.load(file, allow_pickle=False) as arrays:  # reads an array only when it is indexed
        return _chosen(arrays, file, name)


def _chosen(content: Any, file: str, name: str | None) -> Any:
    """Return the only value, or the named one of several. Raises InputError."""
    if not isinstance(content, Mapping):
        if name is not None:
            raise InputError(f"{shown_path(file)}: holds one {type(content).__name__}, so `:{name}` names nothing")
        return content
    if name is None and len(content) == 1:
        return next(iter(content.values()))
    if name in content:
        return content[name]
    names = ", ".join(map(str, content))
    wanted = f"has no `{name}`" if name is not None else f"holds {len(content)} tensors"
    raise InputError(f"{shown_path(file)}: {wanted}; name one of them as {Path(file).name}:NAME ({names})")


def _as_tensor(content: Any, file: str) -> Tensor:
    if isinstance(content, np.ndarray):
        try:
            return torch.from_numpy(content.astype(content.dtype.newbyteorder("="), order="C"))
        except TypeError as error:
            raise InputError(f"{shown_path(file)}: an array of {content.dtype} is not a tensor") from error
    if not isinstance(content, Tensor):
        raise InputError(f"{shown_path(file)}: holds a value of type {type(content).__name__}, not a tensor")
    if content.layout is not torch.strided:
        raise InputError(f"{shown_path(file)}: a tensor of layout {content.layout} is not supported, make it dense")
    return content


def _error_text(error: Exception) -> str:
    if isinstance(error, UnpicklingError):  # torch's message suggests weights_only=False
        return "holds more than tensors, or none; save tensors only, with torch.save"
    return (str(error) or type(error).__name__).splitlines()[0]


_READERS: Mapping[str, Callable[[str, str | None], Any]] = MappingProxyType(
    {".pt": _read_torch, ".pth": _read_torch, ".npy": _read_array, ".npz": _read_arrays}
)
