"""Build the problem that the checks run on from a case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradverify.case import Case, TargetKind
from gradverify.core.model.problem import Problem, Projection, bind, fresh, named_tensors
from gradverify.errors import InputError
from gradverify.run.arguments import make_argument, seed_everything
from gradverify.run.call import arrange
from gradverify.run.module import as_function
from gradverify.run.signature import forward_parameters, kind_of
from gradverify.sampling.dtypes import dtype_named
from gradverify.sampling.seeding import derived_seed


def build(case: Case, target: Any) -> Problem:
    """Return the problem of differentiating `target` at the case's inputs.

    Raises LoadError, InputError, and any exception of the user's factories and constructors.
    """
    made = [make_argument(name, description, case) for name, description in case.inputs.items()]
    kind = kind_of(target)
    call = arrange({argument.name: argument.value for argument in made}, forward_parameters(target), kind)
    function: Callable[..., Any] = target.apply if kind is TargetKind.FUNCTION else target
    if kind is TargetKind.MODULE:
        function, call = as_function(_instance(case, target), call)
    projections: dict[str, Projection] = {}
    for argument in made:
        projections |= argument.projections
    problem = bind(
        function,
        call.args,
        names=call.names,
        kwargs=call.kwargs,
        projections=projections,
        outputs=case.outputs,
        seed=derived_seed(case.draw_key, case.seed, "forward") if case.stochastic else None,
        name=case.target.name,
    )
    _require_outputs(case, problem)
    return problem


def _require_outputs(case: Case, problem: Problem) -> None:
    """Raise InputError if the spec names an output that forward does not return.

    Exceptions of forward are ignored here: the checks report them.
    """
    if case.outputs is None:
        return
    try:
        with torch.no_grad():
            found = problem.function(*(fresh(primal.tensor) for primal in problem.primals))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return
    count = len(named_tensors("", found))
    absent = [number for number in case.outputs if number >= count]
    if absent:
        place = f"{case.outputs_at}: " if case.outputs_at else ""
        there = "one tensor, number 0" if count == 1 else f"{count:,} tensors, counted from 0"
        raise InputError(f"{place}outputs: there is no {', '.join(map(str, absent))}; forward returns {there}")


def _instance(case: Case, target: type[torch.nn.Module]) -> torch.nn.Module:
    """Return a new module, in training mode, whose parameters depend only on the case."""
    seed_everything(case.draw_key, case.seed, "init")
    module = target(**dict(case.init or {}))
    return module.to(device=case.device, dtype=dtype_named(case.dtype)).train()
