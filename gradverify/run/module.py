"""Turn an nn.Module into a function of its inputs and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Case
from gradverify.errors import InputError
from gradverify.run.arguments import seed_everything
from gradverify.run.call import Call
from gradverify.run.describe_exception import describe
from gradverify.run.memory import is_out_of_memory
from gradverify.sampling.dtypes import dtype_named


def has_plain_parameters(module: torch.nn.Module) -> bool:
    """True if the parameters can be passed as arguments: the module is no ScriptModule and has no lazy parameters."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in module.modules())
    tensors = (*module.parameters(), *module.buffers())
    return not scripted and not any(torch.nn.parameter.is_lazy(each) for each in tensors)


def own_parameters(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's parameters by name."""
    named = module.named_parameters()
    return {name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in named}


def as_function(
    module: torch.nn.Module, call: Call, parameters: Mapping[str, Tensor]
) -> tuple[Callable[..., Any], Call]:
    """Return a function of the inputs and then the parameters, and its call with the parameters given.

    Every call starts from the same buffers. If an input has another precision than in `call`, as in a float64 forward,
    the buffers are converted to it.
    """
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

    names = (*call.names, *_unique_names(parameters, (*call.names, *call.kwargs)))
    return function, Call(names=names, args=(*call.args, *parameters.values()), kwargs=call.kwargs)


def instance_of(target: type[torch.nn.Module], case: Case) -> torch.nn.Module:
    """Return a new module, in training mode, whose parameters depend only on the case.

    Raises InputError if the constructor raises.
    """
    seed_everything(case.draw_key, case.seed, "init")
    try:
        module = target(**dict(case.init or {}))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"the constructor of `{target.__name__}` raised {describe(error)}") from error
    return module.to(device=case.device, dtype=dtype_named(case.dtype)).train()


def _other_precision(values: Sequence[Any], usual: Sequence[Any]) -> torch.dtype | None:
    """Return the dtype of the first floating value that is not of its usual dtype, None if there is none."""
    pairs = ((value, own) for value, own in zip(values, usual, strict=False) if isinstance(value, Tensor))
    return next((value.dtype for value, own in pairs if value.is_floating_point() and value.dtype != own.dtype), None)


def _unique_names(names: Iterable[str], taken: Sequence[str]) -> list[str]:
    return [f"self.{name}" if name in taken else name for name in names]
