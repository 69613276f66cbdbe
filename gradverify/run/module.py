"""A module as a function of its inputs and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.run.call import Call


def may_be_a_function(module: torch.nn.Module) -> bool:
    """Tell whether the parameters can be given to it: not those of a script, nor such as a first call makes."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in module.modules())
    tensors = (*module.parameters(), *module.buffers())
    return not scripted and not any(torch.nn.parameter.is_lazy(each) for each in tensors)


def as_function(module: torch.nn.Module, call: Call) -> tuple[Callable[..., Any], Call]:
    """Return a function of the inputs and then the parameters; every call starts from the same buffers.

    Where it is called in another precision, as it is to sample it in double, so are its buffers.
    """
    parameters = {
        name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in module.named_parameters()
    }
    buffers = {name: value.detach().clone() for name, value in module.named_buffers()}
    inputs = len(call.args)

    def function(*values: Any, **keywords: Any) -> Any:
        state: dict[str, Tensor] = dict(zip(parameters, values[inputs:], strict=True))
        other = _other_precision(values, (*call.args, *parameters.values()))
        state |= {
            name: value.clone() if other is None or not value.is_floating_point() else value.to(other)
            for name, value in buffers.items()
        }
        return torch.func.functional_call(module, state, values[:inputs], keywords)

    names = (*call.names, *_apart(parameters, (*call.names, *call.kwargs)))
    return function, Call(names=names, args=(*call.args, *parameters.values()), kwargs=call.kwargs)


def _other_precision(values: Sequence[Any], usual: Sequence[Any]) -> torch.dtype | None:
    """Return the precision of the first value that has another than usual, None where none has."""
    pairs = ((value, own) for value, own in zip(values, usual, strict=False) if isinstance(value, Tensor))
    return next((value.dtype for value, own in pairs if value.is_floating_point() and value.dtype != own.dtype), None)


def _apart(names: Sequence[str] | dict[str, Tensor], taken: Sequence[str]) -> list[str]:
    return [f"self.{name}" if name in taken else name for name in names]
