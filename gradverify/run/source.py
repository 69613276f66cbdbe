"""The file and line at which a backward is defined."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable
from typing import Any

import torch

from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.core.model.generators import restored_generators
from gradverify.core.model.problem import Problem, gpus_of
from gradverify.core.model.tape import record
from gradverify.deadline import OutOfTime
from gradverify.paths import shown_path
from gradverify.result import Source

_Function = type[torch.autograd.Function]


def source_of(target: Any) -> Source | None:
    """Return file and line of the backward of a Function, given the class or its `apply`; None for anything else."""
    function = _function_of(target)
    return None if function is None else _place(_backward(function))


def source_in_graph(problem: Problem) -> Source | None:
    """Return file and line of the backward of the one custom Function in the graph, None if there are none or several.

    Calls the forward once; None if it raises or time has run out.
    """
    try:
        with restored_generators(gpus_of(problem)):
            nodes = custom_nodes(record(problem))
    except (Exception, OutOfTime):
        return None
    found = {class_of(node) for node in nodes}
    return _place(_backward(found.pop())) if len(found) == 1 else None


def _function_of(target: Any) -> _Function | None:
    while isinstance(target, functools.partial):
        target = target.func
    owner = getattr(target, "__self__", None) if getattr(target, "__name__", "") == "apply" else target
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def _backward(function: _Function) -> Callable[..., Any] | None:
    base = torch.autograd.Function
    names = ("backward", "vjp")
    return next((getattr(function, name) for name in names if getattr(function, name) is not getattr(base, name)), None)


def _place(backward: Callable[..., Any] | None) -> Source | None:
    code = getattr(inspect.unwrap(backward), "__code__", None) if backward is not None else None
    if code is None:
        return None
    return Source(file=shown_path(code.co_filename), line=_definition(code.co_filename, code.co_firstlineno))


def _definition(file: str, first: int) -> int:
    """Return the line of `def`: a code object starts at its first decorator."""
    for line in range(first, first + 20):
        if linecache.getline(file, line).lstrip().startswith(("def ", "async def ")):
            return line
    return first
