"""A case to the problem that the checks look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Case, TargetKind
from gradverify.core.function.problem import Problem, Projection, bind, fresh, named_tensors
from gradverify.errors import InputError
from gradverify.run.arguments import make_argument, seed_everything
from gradverify.run.call import Call, arrange
from gradverify.run.signature import forward_parameters, kind_of
from gradverify.sampling.dtypes import dtype_named
from gradverify.sampling.seeding import derived_seed


def build(case: Case, target: Any) -> Problem:
    """Return the problem of differentiating `target` at the case's inputs.

    Raises LoadError, InputError, and whatever a factory or a constructor of the user's raises.
    """
    made = [make_argument(name, description, case) for name, description in case.inputs.items()]
    kind = kind_of(target)
    call = arrange({argument.name: argument.value for argument in made}, forward_parameters(target), kind)
    function: Callable[..., Any] = target.apply if kind is TargetKind.FUNCTION else target
    if kind is TargetKind.MODULE:
        function, call = _as_function(_instance(case, target), call)
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
    """Raise InputError where the spec asks for an output that is not there; what forward raises is for the checks."""
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
    """Return a module whose parameters depend on the case alone."""
    seed_everything(case.draw_key, case.seed, "init")
    module = target(**dict(case.init or {}))
    return module.to(device=case.device, dtype=dtype_named(case.dtype)).train()


def _as_function(module: torch.nn.Module, call: Call) -> tuple[Callable[..., Any], Call]:
    """Return a function of the inputs and then the parameters; every call starts from the same buffers."""
    parameters = {
        name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in module.named_parameters()
    }
    buffers = {name: value.detach().clone() for name, value in module.named_buffers()}
    inputs = len(call.args)

    def function(*values: Any, **keywords: Any) -> Any:
        state: dict[str, Tensor] = dict(zip(parameters, values[inputs:], strict=True))
        state |= {name: value.clone() for name, value in buffers.items()}
        return torch.func.functional_call(module, state, values[:inputs], keywords)

    names = (*call.names, *_apart(parameters, (*call.names, *call.kwargs)))
    return function, Call(names=names, args=(*call.args, *parameters.values()), kwargs=call.kwargs)


def _apart(names: Sequence[str] | dict[str, Tensor], taken: Sequence[str]) -> list[str]:
    return [f"self.{name}" if name in taken else name for name in names]
