"""The kind of a target, and the parameters of its forward."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from gradverify.case import Absence, Parameter, ParameterKind, Signature, TargetKind, TargetProblem
from gradverify.run.load import LoadError

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: ParameterKind.POSITIONAL,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: ParameterKind.POSITIONAL,
    inspect.Parameter.VAR_POSITIONAL: ParameterKind.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: ParameterKind.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD: ParameterKind.VAR_KEYWORD,
}


def signature_of(found: Any) -> Signature:
    """Return the signature of `found`. Raises LoadError if it cannot be called."""
    kind = kind_of(found)
    init = parameters_of(found) if kind is TargetKind.MODULE else None
    return Signature(kind=kind, parameters=_described(forward_parameters(found)), init=_described(init))


def kind_of(found: Any) -> TargetKind:
    """Return the kind of `found`. Raises LoadError if it cannot be called."""
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        return TargetKind.FUNCTION
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return TargetKind.MODULE
    if not callable(found):
        message = f"it is of type {type(found).__name__}, not a Function, a callable or an nn.Module class"
        raise LoadError(TargetProblem(absence=Absence.UNSUITABLE, message=message))
    return TargetKind.CALLABLE


def forward_parameters(found: Any) -> list[inspect.Parameter] | None:
    """Return forward's parameters without `ctx` and `self`, None if Python has no signature (builtins)."""
    kind = kind_of(found)
    forward = found if kind is TargetKind.CALLABLE and not isinstance(found, torch.nn.Module) else found.forward
    parameters = parameters_of(forward)
    if parameters is None:
        return None
    drops_first = kind is TargetKind.MODULE or (kind is TargetKind.FUNCTION and takes_ctx(found))
    if drops_first and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        return parameters[1:]
    return parameters


def takes_ctx(function: type[torch.autograd.Function]) -> bool:
    """True if forward's first parameter is `ctx`: the class defines no setup_context."""
    return function.setup_context is torch.autograd.Function.setup_context


def parameters_of(called: Any) -> list[inspect.Parameter] | None:
    operator = operator_of(called)
    if operator is not None:
        return [_parameter_of(argument) for argument in operator._schema.arguments]
    try:
        return list(inspect.signature(called).parameters.values())
    except (ValueError, TypeError):
        return None


def operator_of(called: Any) -> torch._ops.OpOverload | None:
    """Return the operator that a `torch.library.custom_op` or an entry of `torch.ops` stands for, None for others."""
    found = getattr(called, "_opoverload", called)
    if isinstance(found, torch._ops.OpOverloadPacket):
        found = getattr(found, found.overloads()[0])  # type: ignore[no-untyped-call]
    return found if isinstance(found, torch._ops.OpOverload) else None


def _parameter_of(argument: Any) -> inspect.Parameter:
    """Return the parameter of an argument in an operator's schema."""
    kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    return inspect.Parameter(argument.name, kind, default=default, annotation=str(argument.type))


def _described(parameters: list[inspect.Parameter] | None) -> tuple[Parameter, ...] | None:
    if parameters is None:
        return None
    return tuple(
        Parameter(
            name=parameter.name,
            kind=_KINDS[parameter.kind],
            has_default=parameter.default is not inspect.Parameter.empty,
            annotation=_annotation_of(parameter),
        )
        for parameter in parameters
    )


def _annotation_of(parameter: inspect.Parameter) -> str:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation
    return annotation.__name__ if type(annotation) is type and annotation is not inspect.Parameter.empty else ""
