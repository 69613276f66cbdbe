"""Build the problem that the checks run on from a case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Case, TargetKind
from gradverify.checks.parity import check as parity
from gradverify.core.model.problem import Problem, Projection, bind, fresh
from gradverify.errors import InputError
from gradverify.nested import named_tensors
from gradverify.run.arguments import make_argument, seed_everything
from gradverify.run.call import arrange
from gradverify.run.constant_parameters import drawn_around, forward_of
from gradverify.run.module import as_function, has_plain_parameters, instance_of, own_parameters
from gradverify.run.reference import reference_call, with_reference
from gradverify.run.signature import forward_parameters, kind_of
from gradverify.sampling.seeding import derived_seed

_CPU = "cpu"


def build(case: Case, target: Any, reference: Any = None) -> Problem:
    """Return the problem of differentiating `target` at the case's inputs, and its reference if there is one.

    If devices are to be compared, it has the same problem on the CPU too. Raises LoadError, InputError, and any
    exception of the user's factories and constructors.
    """
    problem = _on_device_of(case, target, reference)
    if parity.NAME not in case.checks or case.device == _CPU:
        return problem
    seed_everything(case.draw_key, case.seed)  # as for the first: factories then draw the same numbers
    return replace(problem, on_cpu=_on_device_of(replace(case, device=_CPU), target, None))


def _on_device_of(case: Case, target: Any, reference: Any) -> Problem:
    made = [make_argument(name, description, case) for name, description in case.inputs.items()]
    kind = kind_of(target)
    call = arrange({argument.name: argument.value for argument in made}, forward_parameters(target), kind)
    function: Callable[..., Any] = target.apply if kind is TargetKind.FUNCTION else target
    projections: dict[str, Projection] = {}
    for argument in made:
        projections |= argument.projections
    forward_seed = derived_seed(case.draw_key, case.seed, "forward") if case.stochastic else None
    parameters: dict[str, Tensor] = {}
    note = ""
    module = instance_of(target, case) if kind is TargetKind.MODULE else target
    if isinstance(module, torch.nn.Module) and has_plain_parameters(module):
        inputs = len(call.args)
        forward = forward_of(module, call, projections=projections, seed=forward_seed)
        own, note = drawn_around(own_parameters(module), forward, key=case.draw_key, seed=case.seed)
        function, call = as_function(module, call, own)
        parameters = dict(zip(call.names[inputs:], call.args[inputs:], strict=True))
    problem = bind(
        function,
        call.args,
        names=call.names,
        kwargs=call.kwargs,
        projections=projections,
        outputs=case.outputs,
        seed=forward_seed,
        name=case.target.name,
    )
    problem = replace(problem, note=note)
    _require_outputs(case, problem)
    if reference is None or case.reference is None:
        return problem
    values = {argument.name: argument.value for argument in made}
    function, call = reference_call(reference, case, values, parameters)
    return with_reference(problem, function, call, name=case.reference.written, projections=projections)


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
