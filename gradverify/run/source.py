"""Where backward is defined."""

from __future__ import annotations

import inspect
import linecache
from typing import Any

import torch

from gradverify.result import Source
from gradverify.run.blame import shown_path


def source_of(target: Any) -> Source | None:
    """Return file and line of a Function's `backward`, of a module's class or of a callable; None where unknown."""
    for candidate in _candidates(target):
        try:
            found = _place(candidate)
        except (OSError, TypeError, ValueError):
            continue
        if found is not None:
            return found
    return None


def _candidates(target: Any) -> list[Any]:
    if not isinstance(target, type) or not issubclass(target, torch.autograd.Function):
        return [target]
    base = torch.autograd.Function
    own = [getattr(target, name) for name in ("backward", "vjp") if getattr(target, name) is not getattr(base, name)]
    return [*own, target]


def _place(candidate: Any) -> Source | None:
    unwrapped = inspect.unwrap(candidate)
    code = getattr(unwrapped, "__code__", None)
    if code is not None:
        return Source(file=shown_path(code.co_filename), line=_definition(code.co_filename, code.co_firstlineno))
    if not isinstance(unwrapped, type):
        unwrapped = type(unwrapped)
    file = inspect.getsourcefile(unwrapped)
    if file is None or unwrapped.__module__.partition(".")[0] in ("torch", "builtins"):
        return None
    return Source(file=shown_path(file), line=inspect.getsourcelines(unwrapped)[1])


def _definition(file: str, first: int) -> int:
    """Return the line of `def`, below the decorators that a code object counts as its first lines."""
    for line in range(first, first + 20):
        if linecache.getline(file, line).lstrip().startswith(("def ", "async def ")):
            return line
    return first
