"""Make the values that forward is called with from the descriptions of inputs in a spec."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.case import (
    Case,
    DeviceArgument,
    DtypeArgument,
    Factory,
    Input,
    ListInput,
    Literal,
    ObjectInput,
    SizeArgument,
    TensorInput,
    TupleArgument,
)
from gradverify.core.model.problem import Projection
from gradverify.errors import InputError
from gradverify.nested import named_tensors
from gradverify.run.devices import only_cpu
from gradverify.run.load import load
from gradverify.run.siblings import importable
from gradverify.sampling.constraints import projection
from gradverify.sampling.draw import draw, finish
from gradverify.sampling.dtypes import dtype_named
from gradverify.sampling.seeding import derived_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One input and its value."""

    name: str
    value: Any
    projections: Mapping[str, Projection]  # by the name of the tensor


def make_argument(name: str, description: Input, case: Case) -> Argument:
    """Return the value of one input. Raises InputError, and any exception of a factory."""
    projections: dict[str, Projection] = {}
    value = _value(name, description, case, projections)
    return Argument(name=name, value=value, projections=projections)


def seed_everything(*parts: str | int) -> None:
    """Seed the global generators of Python, NumPy and torch from these words."""
    seed = derived_seed(*parts)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if only_cpu():
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a millisecond to look for devices
    else:
        torch.manual_seed(seed)


def _value(name: str, description: Input, case: Case, projections: dict[str, Projection]) -> Any:
    if isinstance(description, ListInput):
        return [_value(f"{name}[{i}]", item, case, projections) for i, item in enumerate(description.items)]
    if isinstance(description, TensorInput | ObjectInput):
        described = description.made if isinstance(description, ObjectInput) else description
        return _tensor(name, described, case, projections)
    convert = _PLAIN.get(type(description))
    return convert(description, case) if convert is not None else copy.deepcopy(description)


def _tensor(name: str, description: TensorInput, case: Case, projections: dict[str, Projection]) -> Any:
    origin = description.origin
    try:
        value = (
            _factory_value(origin, name, description, case)
            if isinstance(origin, Factory)
            else draw(description, name=name, key=case.draw_key, seed=case.seed, dtype=case.dtype, device=case.device)
        )
    except InputError as error:
        raise InputError(f"input `{name}`: {error}") from error
    project = projection(description)
    if project is not None:
        projections.update({entry.name: project for entry in named_tensors(name, value)})
    return value


def _factory_value(factory: Factory, name: str, description: TensorInput, case: Case) -> Any:
    """Return the factory's value; each tensor in it gets the case's dtype, device, layout and requires_grad.

    A module gets the dtype and the device.
    """
    make = load(factory.target)
    seed_everything(case.draw_key, case.seed, name)
    with importable(factory.target):
        made = make(**copy.deepcopy(dict(factory.args)))
    return _with_case_options(made, description, case)


def _with_case_options(made: Any, description: TensorInput, case: Case) -> Any:
    if isinstance(made, Tensor):
        return finish(made, description, dtype=case.dtype, device=case.device)
    if isinstance(made, torch.nn.Module):
        return made.to(device=case.device, dtype=dtype_named(description.dtype or case.dtype))
    if isinstance(made, np.ndarray):
        return made
    if isinstance(made, tuple) and hasattr(made, "_fields"):
        return type(made)(*(_with_case_options(entry, description, case) for entry in made))
    if type(made) in (list, tuple):
        return type(made)(_with_case_options(entry, description, case) for entry in made)
    if type(made) is dict:
        return {key: _with_case_options(entry, description, case) for key, entry in made.items()}
    return made


def _literal(literal: Literal, _case: Case) -> Any:
    return copy.deepcopy(literal.value)  # a forward may modify the list in place


def _dtype(argument: DtypeArgument, case: Case) -> torch.dtype:
    return dtype_named(case.dtype if argument.name == "case" else argument.name)


def _size(argument: SizeArgument, _case: Case) -> torch.Size:
    return torch.Size(argument.size)


def _tuple(argument: TupleArgument, _case: Case) -> tuple[Any, ...]:
    return tuple(copy.deepcopy(argument.items))


def _device(argument: DeviceArgument, case: Case) -> torch.device:
    return torch.device(case.device if argument.name == "case" else argument.name)


_PLAIN: Mapping[type, Callable[[Any, Case], Any]] = MappingProxyType(
    {Literal: _literal, DtypeArgument: _dtype, SizeArgument: _size, TupleArgument: _tuple, DeviceArgument: _device}
)
