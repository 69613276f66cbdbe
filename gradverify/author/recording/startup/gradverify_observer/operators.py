"""Operators of torch's dispatcher: which ones have a gradient written by hand, and the modules that lead to them."""

from __future__ import annotations

import inspect
import sys
from types import FrameType, ModuleType
from typing import Any

from gradverify_observer.statistics import aside

_CLASSES = "torch._ops"
_FORMULAS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")  # as for `gradverify init`
_NOT_OF_COMMAND = ("torch", "gradverify", "gradverify_observer")


def overload_of(called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the operator that a call of `torch.ops.NAMESPACE.NAME` or of one of its overloads stands for.

    None if no overload takes these arguments.
    """
    torch = sys.modules["torch"]
    if isinstance(called, torch._ops.OpOverload):
        return called
    names = called.overloads()
    if len(names) == 1:
        return getattr(called, names[0])
    try:
        with aside(torch):  # torch warns where a tensor that requires grad is tried as a number
            bare = (
                [_detached(torch, value) for value in args],
                {name: _detached(torch, kwargs[name]) for name in kwargs},
            )
            return getattr(called, torch._C._jit_resolve_packet(called._qualified_op_name, *bare[0], **bare[1]))
    except RuntimeError:
        return None


def _detached(torch: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_detached(torch, entry) for entry in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def has_formula(operator: Any) -> bool:
    """True if an operator of tensors has a kernel for autograd and, if it is a `custom_op`, a backward."""
    schema = operator._schema
    if not all(any("Tensor" in str(each.type) for each in part) for part in (schema.arguments, schema.returns)):
        return False
    defined = custom_op_of(operator)
    if defined is not None:
        return getattr(defined, "_backward_fn", None) is not None
    has_kernel = sys.modules["torch"]._C._dispatch_has_kernel_for_dispatch_key
    return any(has_kernel(operator._name, key) for key in _FORMULAS)


def custom_op_of(operator: Any) -> Any:
    """Return what `torch.library.custom_op` made of an operator, None if it was made otherwise."""
    from torch._library.custom_ops import OPDEFS

    return OPDEFS.get(operator._schema.name)


def operator_of(function: Any) -> Any:
    """Return the operator that torch made a Function of, None if it cannot be found."""
    waiting = [function.forward]
    for _ in range(4):  # the operator is a variable of forward, or of the forward that this one calls
        forward = waiting.pop()
        for cell in getattr(forward, "__closure__", None) or ():
            if hasattr(getattr(cell.cell_contents, "_schema", None), "arguments"):
                return cell.cell_contents
            if inspect.isfunction(cell.cell_contents):
                waiting.append(cell.cell_contents)
        if not waiting:
            return None
    return None


def running_calls(operator: Any) -> int:
    """Return how many calls of an operator this thread is in: an autograd kernel may call its operator once more."""
    count = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__call__" and frame.f_globals.get("__name__") == _CLASSES:
            called = frame.f_locals.get(frame.f_code.co_varnames[0])
            count += _qualified(called) == operator._schema.name
        frame = frame.f_back
    return count


def parameters_of(operator: Any) -> list[inspect.Parameter]:
    """Return the parameters of an operator, named as in its schema."""
    kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(each.name, kinds[0] if each.kwarg_only else kinds[1]) for each in operator._schema.arguments
    ]


def name_in_torch_ops(operator: Any) -> str:
    """Return `torch.ops.NAMESPACE.NAME`, and the overload if it is not the first."""
    namespace, _, name = operator._schema.name.partition("::")
    return f"torch.ops.{namespace}.{name}{_overload(operator)}"


def places_of(operator: Any) -> list[dict[str, Any]]:
    """Return the modules of the command that lead to an operator, as attribute or through their attribute `torch`.

    Which of them a spec should name depends on their text, and is decided when the command has ended.
    """
    modules = {id(module): module for module in list(sys.modules.values())}
    return [place for module in modules.values() for place in _places_in(module, operator)]


def _places_in(module: Any, operator: Any) -> list[dict[str, Any]]:
    file = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
    if not isinstance(file, str) or not file.endswith(".py") or module.__name__.partition(".")[0] in _NOT_OF_COMMAND:
        return []
    torch = sys.modules["torch"]
    names: list[str] = []
    defines = False
    for name, value in list(vars(module).items()):
        if isinstance(value, torch.library.Library):
            defines = defines or operator._schema.name in getattr(value, "_op_defs", ())
        elif _leads_to(value, operator):
            names.append(name if isinstance(value, torch._ops.OpOverload) else f"{name}{_overload(operator)}")
    if not names and vars(module).get("torch") is not torch:
        return []
    spec = getattr(module, "__spec__", None) if module.__name__ == "__main__" else None  # python -m package.module
    return [
        {
            "module": module.__name__ if spec is None else spec.name,
            "file": file,
            "name": names[0] if names else name_in_torch_ops(operator),
            "defines": defines,
        }
    ]


def _leads_to(value: Any, operator: Any) -> bool:
    operators = sys.modules["torch"]._ops
    if isinstance(value, operators.OpOverload):
        return value is operator
    return isinstance(value, operators.OpOverloadPacket) and _qualified(value) == operator._schema.name


def _qualified(called: Any) -> str:
    """Return `namespace::name` of an operator or one of its overloads, "" for anything else."""
    operators = sys.modules["torch"]._ops
    if isinstance(called, operators.OpOverload):
        return str(called._schema.name)
    return str(called._qualified_op_name) if isinstance(called, operators.OpOverloadPacket) else ""


def _overload(operator: Any) -> str:
    name: str = operator._overloadname
    return "" if operator._overloadpacket.overloads()[0] == name else f".{name}"
