"""The inputs of a case as tensors and plain values, and a case with one of them replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.case import (
    INIT,
    Case,
    DtypeArgument,
    Factory,
    Input,
    ListInput,
    Literal,
    ObjectInput,
    TensorInput,
    TupleArgument,
    Values,
)
from gradverify.exploration.tools import Tools
from gradverify.sampling.dtypes import dtype_named
from gradverify.sampling.literals import literal_tensor

_ITEM = re.compile(r"(.*)\[(\d+)\]")  # path of a tensor in a list: xs[1]


def tensor_inputs(case: Case) -> dict[str, TensorInput]:
    """Return the descriptions of all tensors by path: `x`, or `xs[1]` in a list."""
    found: dict[str, TensorInput] = {}
    for name, given in case.inputs.items():
        if isinstance(given, TensorInput):
            found[name] = given
        elif isinstance(given, ListInput):
            items = ((f"{name}[{number}]", item) for number, item in enumerate(given.items))
            found |= {path: item for path, item in items if isinstance(item, TensorInput)}
    return found


def with_objects(case: Case, tools: Tools) -> Case:
    """Return the case in which what a factory makes is described as an object if it is no tensor.

    Raises what `tools.arguments` raises.
    """
    made = {name: given for name, given in tensor_inputs(case).items() if isinstance(given.origin, Factory)}
    values = tools.arguments(replace(case, inputs={name: case.inputs[name] for name in made if name in case.inputs}))
    objects = {name: ObjectInput(made=made[name]) for name, value in values.items() if not isinstance(value, Tensor)}
    return replace(case, inputs={**case.inputs, **objects})


def plain_inputs(case: Case, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are no tensors by name, defaults of parameters that are not set included.

    Those of a module's constructor are among them, as `init.stride`.
    """
    found = {name: value for name, value in defaults.items() if name not in case.inputs}
    found |= {f"{INIT}{name}": value for name, value in (case.init or {}).items()}
    for name, given in case.inputs.items():
        if isinstance(given, Literal):
            found[name] = given.value
        elif isinstance(given, TupleArgument):
            found[name] = tuple(given.items)
        elif isinstance(given, DtypeArgument):
            found[name] = given
        elif isinstance(given, ListInput):
            items = ((f"{name}[{number}]", item) for number, item in enumerate(given.items))
            found |= {path: item.value for path, item in items if isinstance(item, Literal)}
    return found


def is_fixed(case: Case, path: str) -> bool:
    """Return True if an input, or a list that it is in, stays as it is."""
    return path in case.explore.fixed or path.partition("[")[0] in case.explore.fixed


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path, given those of the inputs by name."""
    item = _ITEM.fullmatch(path)
    return values[path] if item is None or path in values else values[item[1]][int(item[2])]


def with_input(case: Case, path: str, given: Input) -> Case:
    """Return the case with one input, or one tensor of a list, replaced."""
    item = _ITEM.fullmatch(path)
    if item is None or path in case.inputs:
        return replace(case, inputs={**case.inputs, path: given})
    name, number = item[1], int(item[2])
    entries = case.inputs[name]
    assert isinstance(entries, ListInput)
    items = (*entries.items[:number], given, *entries.items[number + 1 :])
    return replace(case, inputs={**case.inputs, name: ListInput(items=items)})


def with_plain(case: Case, name: str, value: Any) -> Case:
    """Return the case with another value of an argument, or with the description of one."""
    if name.startswith(INIT):
        return replace(case, init={**(case.init or {}), name.removeprefix(INIT): value})
    if isinstance(value, TensorInput | DtypeArgument):
        return with_input(case, name, value)
    return with_input(case, name, TupleArgument(items=value) if isinstance(value, tuple) else Literal(value=value))


def shown(value: Any) -> str:
    """Return the value of an argument, or the description of one, as messages show it."""
    if isinstance(value, TensorInput):
        kind = "a tensor" if value.requires_grad else f"a constant of {value.dtype}" if value.dtype else "a constant"
        return f"{kind} of shape {list(value.shape or ())}"
    if isinstance(value, DtypeArgument):
        return value.name
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(list(value) if isinstance(value, tuple) else value).removeprefix("torch.")


def tensor_at(case: Case, path: str, tools: Tools) -> Tensor:
    """Return the values of one tensor, on the CPU, contiguous; raises what `tools.arguments` raises."""
    given = tensor_inputs(case)[path]
    if isinstance(given.origin, Values) and given.constraint is None and not given.avoid:
        return _listed(given, case)
    name = path if path in case.inputs else path.partition("[")[0]
    value = value_at(tools.arguments(replace(case, inputs={name: case.inputs[name]})), path)
    if not isinstance(value, Tensor):
        raise TypeError(f"{path} is no tensor")
    return value.detach().to("cpu").contiguous().clone()


def with_tensor(case: Case, path: str, tensor: Tensor) -> Case:
    """Return the case with these values in place of a tensor; the dtype stays that of the input."""
    return with_input(case, path, described(tensor, tensor_inputs(case)[path]))


def described(tensor: Tensor, like: TensorInput) -> TensorInput:
    """Return the description of a tensor with these values, and the modifiers of `like`."""
    own = str(tensor.dtype).removeprefix("torch.")
    inferred = tensor.is_floating_point() or tensor.is_complex()  # the case's dtype then
    keeps_names = like.sizes is not None and like.shape == tuple(tensor.shape)
    shape = tuple(tensor.shape) if keeps_names or not tensor.numel() else None
    values: Any = _strings(tensor.tolist()) if tensor.is_complex() else tensor.tolist()
    return replace(
        like,
        origin=Values(values=values),
        shape=shape,
        sizes=like.sizes if keeps_names else None,
        dtype=like.dtype if like.dtype is not None or inferred else own,
    )


def written_out(case: Case) -> str:
    """Return what a change may change, as text: arguments may have no truth value when they are compared."""
    return repr((case.inputs, case.init, case.dims, case.dtype))


def frozen(case: Case, tools: Tools) -> Case:
    """Return the case with the values of every tensor written out."""
    for path, given in tensor_inputs(case).items():
        if not isinstance(given.origin, Values):
            values = tensor_at(case, path, tools)
            shape = None if given.sizes is None else tuple(values.shape)
            case = with_input(case, path, replace(described(values, given), shape=shape, sizes=given.sizes))
    return case


def _listed(given: TensorInput, case: Case) -> Tensor:
    assert isinstance(given.origin, Values)
    values = literal_tensor(given.origin.values, given.shape)
    if given.dtype is None:
        return values
    wanted = dtype_named(case.dtype if given.dtype == "case" else given.dtype)
    if wanted.is_complex:
        return values.to(torch.complex128)
    return values.to(torch.float64 if wanted.is_floating_point else wanted)


def _strings(values: Any) -> Any:
    return [_strings(value) for value in values] if isinstance(values, list) else str(values).strip("()")
