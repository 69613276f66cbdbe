"""Build the problem that a function's outputs and gradients are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from gradverify.case import Case, TargetKind
from gradverify.core.model.problem import Problem, Projection, bind
from gradverify.errors import InputError
from gradverify.nested import map_tensors
from gradverify.run.call import Call, arrange
from gradverify.run.module import as_function, instance_of, own_parameters
from gradverify.run.signature import forward_parameters, kind_of


def with_reference(
    problem: Problem,
    function: Any,
    call: Call,
    *,
    name: str,
    projections: Mapping[str, Projection] | None = None,
) -> Problem:
    """Return the problem with `function`, called with the same arguments, as its reference. Raises InputError.

    Every floating and complex tensor among the arguments is an input of the reference, also those by which the function
    is not differentiated: in float64 they are moved to measure conditioning.
    """
    reference = bind(
        function,
        [map_tensors(value, _differentiated) for value in call.args],
        names=call.names,
        kwargs={key: map_tensors(value, _differentiated) for key, value in call.kwargs.items()},
        projections=projections,
        outputs=problem.outputs,
        seed=problem.seed,
        name=name,
    )
    lacking = {primal.name for primal in problem.primals} - {primal.name for primal in reference.primals}
    if lacking:
        raise InputError(f"{name} does not take {', '.join(sorted(lacking))}, by which the function is differentiated")
    return replace(problem, reference=reference)


def reference_call(
    reference: Any, case: Case, values: Mapping[str, Any], parameters: Mapping[str, Tensor]
) -> tuple[Callable[..., Any], Call]:
    """Return the reference as a function, and its call with the inputs and a module's parameters by name.

    A reference is a function that takes both, or a module class whose parameters have the same names: it gets their
    values. Raises InputError.
    """
    kind = kind_of(reference)
    if kind is not TargetKind.MODULE:
        function = reference.apply if kind is TargetKind.FUNCTION else reference
        return function, arrange({**values, **parameters}, forward_parameters(reference), kind)
    call = arrange(values, forward_parameters(reference), kind)
    inputs = len(call.args)
    module = instance_of(reference, case)
    function, call = as_function(module, call, own_parameters(module))
    return function, with_parameters(call, inputs, parameters)


def with_parameters(call: Call, inputs: int, parameters: Mapping[str, Tensor]) -> Call:
    """Return the call with these parameters in place of its own, which follow its inputs. Raises InputError."""
    own = call.names[inputs:]
    if set(own) != set(parameters):
        there, here = ", ".join(sorted(own)) or "none", ", ".join(sorted(parameters)) or "none"
        raise InputError(f"the reference has the parameters {there}, the function {here}")
    return replace(call, args=(*call.args[:inputs], *(parameters[name] for name in own)))


def _differentiated(tensor: Tensor) -> Tensor:
    if tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return tensor.detach().requires_grad_()
