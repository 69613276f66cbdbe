"""Operators of the dispatcher that have an autograd formula, and the attributes that name them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef

from gradverify.author.finding.model import Operator
from gradverify.run.signature import operator_of

_Dispatcher: Any = torch._C
_OWN = frozenset(name.partition("::")[0] for name in _Dispatcher._dispatch_get_all_op_names())  # namespaces of torch
_LATER = frozenset(("prims", "rngprims", "inductor", "higher_order", "export", "triton", "debugprims", "flex_lib"))
_FORMULAS = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")


def registered_operators(module: ModuleType) -> tuple[Operator, ...]:
    """Return the operators with an autograd formula that are none of torch's, with a module's attributes for them."""
    reached: dict[str, list[str]] = {}
    own: set[str] = set()
    for name, value in vars(module).items():
        qualified = _qualified(value)
        if qualified:
            reached.setdefault(qualified, []).append(name)
            if _is_defined_by(value, module):
                own.add(qualified)
        elif isinstance(value, torch.library.Library):
            own |= set(value._op_defs)
    names = (name.partition(".")[0] for name in _Dispatcher._dispatch_get_all_op_names())
    wanted = sorted({name for name in names if name.partition("::")[0] not in _OWN | _LATER})
    return tuple(
        Operator(qualified=name, attributes=tuple(reached.get(name, ())), defined_here=name in own)
        for name in wanted
        if _has_formula(name)
    )


def _qualified(value: object) -> str:
    """Return `namespace::name` of what stands for an operator, "" for anything else."""
    if not isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, CustomOpDef)):
        return ""
    operator = operator_of(value)
    return "" if operator is None else operator._schema.name


def _is_defined_by(value: object, module: ModuleType) -> bool:
    return getattr(getattr(value, "_init_fn", None), "__module__", None) == module.__name__


def _has_formula(name: str) -> bool:
    """True if an operator of tensors has a kernel for autograd and, where it is a `custom_op`, a backward."""
    namespace, _, short = name.partition("::")
    try:
        packet = getattr(getattr(torch.ops, namespace), short)
        operator = operator_of(packet)
    except (AttributeError, RuntimeError):
        return False
    if operator is None or not _is_of_tensors(operator):
        return False
    custom = OPDEFS.get(name)
    if custom is not None:
        return getattr(custom, "_backward_fn", None) is not None
    full = operator._schema.name + (f".{operator._schema.overload_name}" if operator._schema.overload_name else "")
    return any(_Dispatcher._dispatch_has_kernel_for_dispatch_key(full, key) for key in _FORMULAS)


def _is_of_tensors(operator: torch._ops.OpOverload) -> bool:
    schema = operator._schema
    return all(any("Tensor" in str(each.type) for each in part) for part in (schema.arguments, schema.returns))
