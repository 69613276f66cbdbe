"""The Python functions that a target consists of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from gradverify.exploration.exercised.user_code import code_of, files_of, function_of, is_foreign, nested

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


def with_called(functions: Sequence[Any], *, in_other_files: bool = False) -> list[FunctionType | CodeType]:
    """Return the functions and those of the same file that they call, each once.

    They are called by a global name, as a method of a class or a function of a module with one, or held in a closure.
    With `in_other_files`, those of other files of the user are returned too.
    """
    is_user_file = files_of(filter(None, map(code_of, functions))) if in_other_files else None
    pending = [function_of(function) or code_of(function) for function in functions]
    found: dict[int, FunctionType | CodeType] = {}
    while pending:
        function = pending.pop(0)
        code = code_of(function)
        if function is None or code is None or id(code) in found:
            continue
        found[id(code)] = function
        if isinstance(function, FunctionType):
            called = filter(None, map(function_of, _named_in(function, code)))
            files = ((each, each.__code__.co_filename) for each in called)
            pending += [
                each for each, file in files if file == code.co_filename or (is_user_file and is_user_file(file))
            ]
    return list(found.values())


def _named_in(function: FunctionType, code: CodeType) -> Iterator[Any]:
    """Yield what a function names: globals, what stands under its other names in classes and modules among them, cells.

    Classes and modules of torch are left out.
    """
    names = {name: None for each in nested(code) for name in each.co_names}
    for name in names:
        value = function.__globals__.get(name)
        yield value
        if isinstance(value, type | ModuleType) and not _is_of_torch(value):
            yield from (inspect.getattr_static(value, other, None) for other in names)
    yield from contents_of(function)


def _is_of_torch(value: type | ModuleType) -> bool:
    return (value.__module__ if isinstance(value, type) else value.__name__).partition(".")[0] == "torch"


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
