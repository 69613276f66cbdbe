"""Import one module in a worker, and return its Functions and operators."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from types import ModuleType

import torch

from gradverify.author.finding.model import Imported, Module, target_in
from gradverify.author.finding.registered import registered_operators
from gradverify.case import TargetProblem
from gradverify.run.load import LoadError, module_of
from gradverify.run.siblings import importable

_Function = type[torch.autograd.Function]


def import_module(module: Module) -> Imported | TargetProblem:
    """Return what a module defines, or why it cannot be imported."""
    target = target_in(module, "_")
    started = time.perf_counter()
    try:
        with importable(target):
            found = module_of(target)
    except LoadError as error:
        return error.problem
    return Imported(
        functions=tuple(sorted(((name, _line(cls)) for name, cls in _functions(found)), key=lambda each: each[1])),
        operators=registered_operators(found),
        has_torch=getattr(found, "torch", None) is torch,
        seconds=time.perf_counter() - started,
    )


def _functions(module: ModuleType) -> Iterator[tuple[str, _Function]]:
    """Yield the attribute and the class of every Function that a module defines, those inside its classes too."""
    pending = [("", dict(vars(module)))]
    seen: set[int] = set()
    while pending:
        prefix, names = pending.pop()
        for name, value in names.items():
            if not isinstance(value, type) or value.__module__ != module.__name__ or id(value) in seen:
                continue
            seen.add(id(value))
            if is_hand_written(value):
                yield f"{prefix}{name}", value
            pending.append((f"{prefix}{name}.", dict(vars(value))))


def is_hand_written(cls: type) -> bool:
    """True if a class is a Function with a forward and a backward."""
    base = torch.autograd.Function
    if not issubclass(cls, base) or cls.forward is base.forward:
        return False
    return cls.backward is not base.backward or cls.vjp is not base.vjp


def _line(cls: type[torch.autograd.Function]) -> int:
    """Return the line of forward."""
    code = getattr(inspect.unwrap(cls.forward), "__code__", None)
    return 0 if code is None else int(code.co_firstlineno)
