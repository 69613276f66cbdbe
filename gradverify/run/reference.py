"""Build the problem that a function's outputs and gradients are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from gradverify.core.model.problem import Problem, Projection, bind, map_tensors
from gradverify.errors import InputError
from gradverify.run.call import Call


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


def _differentiated(tensor: Tensor) -> Tensor:
    if tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    return tensor.detach().requires_grad_()
