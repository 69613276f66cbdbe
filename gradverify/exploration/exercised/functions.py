"""The Python functions that a target consists of."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import torch

from gradverify.exploration.exercised.user_code import code_of, function_of, is_foreign, nested

_METHODS = ("forward", "setup_context", "backward", "vjp")


def functions_of(target: Any) -> tuple[FunctionType, ...]:
    """Return the methods of a Function, the forward of a module, or a callable's own function.

    Functions of torch and gradverify, and what is not written in Python, are left out.
    """
    while isinstance(target, functools.partial):
        target = target.func
    owner = getattr(target, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        target = owner  # its `apply`
    if isinstance(target, type) and issubclass(target, torch.autograd.Function):
        return _own(getattr(target, name) for name in _METHODS)
    if isinstance(target, torch.nn.Module) or (isinstance(target, type) and issubclass(target, torch.nn.Module)):
        return _own([target.forward])
    return _own([target if function_of(target) is not None or isinstance(target, type) else type(target).__call__])


def functions_together(targets: Iterable[Any]) -> tuple[FunctionType, ...]:
    """Return the functions of several targets, each once."""
    return tuple(dict.fromkeys(function for target in targets for function in functions_of(target)))


def with_called(functions: Sequence[Any]) -> list[FunctionType | CodeType]:
    """Return the functions and those of the same file that they call by a global name or hold, each once."""
    pending = [function_of(function) or code_of(function) for function in functions]
    found: dict[int, FunctionType | CodeType] = {}
    while pending:
        function = pending.pop(0)
        code = code_of(function)
        if function is None or code is None or id(code) in found:
            continue
        found[id(code)] = function
        if isinstance(function, FunctionType):
            names = {name: None for each in nested(code) for name in each.co_names}
            held = [*(function.__globals__.get(name) for name in names), *contents_of(function)]
            called = [function_of(each) for each in held]
            pending += [each for each in called if each and each.__code__.co_filename == code.co_filename]
    return list(found.values())


def contents_of(function: FunctionType) -> Iterator[Any]:
    """Yield the values in a function's closure."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            continue


def _own(found: Iterable[Any]) -> tuple[FunctionType, ...]:
    functions = [function_of(each) for each in found]
    kept = [each for each in functions if each is not None and not is_foreign(each.__code__.co_filename)]
    return tuple(dict.fromkeys(kept))
