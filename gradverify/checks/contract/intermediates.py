"""Intermediates of forward that backward uses and that autograd treats as constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gradverify.checks.contract.nodes import class_of, custom_nodes, saved_tensors, tensors_on_ctx
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Coordinates, Subject, as_coordinates, graph_at
from gradverify.checks.contract.wording import SIMILAR_EXPONENT, allowance, difference
from gradverify.core.model.coordinates import entries_of, flatten
from gradverify.core.model.problem import fresh
from gradverify.core.model.tape import Tape, vjp

_STEP_EXPONENT = 0.4  # relative step eps**0.4: larger than rounding, small enough to stay on one branch of the function
_MAX_TESTED = 8  # largest number of intermediates tested


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value kept on a node that autograd treats as a constant."""

    place: str  # saved tensor 0, ctx.slope
    function: str  # name of the Function
    value: Tensor
    put: Callable[[Tensor], Any]  # overwrites the value on the node


def used_as_constants(subject: Subject) -> tuple[Constant, ...]:
    """Return the intermediates on which backward depends although autograd treats them as constants.

    Each is replaced by its value at a nearby point, with everything else unchanged. Backward uses it if the gradient
    with create_graph changes. Raises EvaluationError.
    """
    tapes = [graph_at_scaled_inputs(subject, numbers) for numbers in ((), range(len(subject.primals)))]
    here, there = map(_constants, tapes)
    candidates = [
        name for name in here if name in there and _varies_smoothly(subject, here[name].value, there[name].value)
    ]
    if not candidates:
        return ()
    before, found = gradients_with_graph(subject, tapes[0]), []
    for name in candidates[:_MAX_TESTED]:
        tape = graph_at_scaled_inputs(subject, ())
        constant = _constants(tape)[name]
        constant.put(there[name].value)
        if gradients_differ(subject, gradients_with_graph(subject, tape), before):
            found.append(constant)
    return tuple(found)


def graph_at_scaled_inputs(subject: Subject, numbers: Sequence[int]) -> Tape:
    """Return a graph with the primals in `numbers` scaled by about 1 + step; raises EvaluationError.

    Each entry has a factor of its own: quotients of inputs change too. Saved tensors are copies, so that overwriting
    them changes neither inputs nor outputs.
    """
    generator = torch.Generator().manual_seed(subject.settings.seed)
    points = []
    for number, primal in enumerate(subject.primals):
        shape = primal.tensor.shape if primal.tensor.layout is torch.strided else ()
        steps = _step(subject) * (0.5 + torch.rand(shape, generator=generator, dtype=torch.float64))
        factor = 1.0 + steps.to(primal.tensor.device, primal.tensor.real.dtype) * (number in numbers)
        points.append(fresh(primal.tensor).contiguous() * factor)
    with saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
        return graph_at(subject, points)


def graph_near(subject: Subject, steps: int) -> Tape:
    """Return a graph with all primals scaled by 1 + so many steps; raises EvaluationError."""
    return graph_at(subject, [fresh(primal.tensor) * (1.0 + steps * _step(subject)) for primal in subject.primals])


def gradients_with_graph(subject: Subject, tape: Tape) -> Coordinates:
    """Return B(g) as backward computes it with create_graph; raises EvaluationError."""
    with torch.enable_grad():
        grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in subject.cotangents])
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def gradients_differ(subject: Subject, one: Coordinates, other: Coordinates) -> bool:
    """True if two gradients differ by more than rounding and noise."""
    return any(
        largest(difference) > allowance(subject, number, 1.0, one[number], other[number], power=SIMILAR_EXPONENT)
        for number, difference in enumerate(difference(one, other))
    )


def eps_of(subject: Subject) -> float:
    """Return the largest eps of the dtypes in the computation."""
    return max(float(torch.finfo(dtype).eps) for dtype in subject.dtypes)


def _constants(tape: Tape) -> dict[tuple[str, str], Constant]:
    """Return the floats, and the floating tensors without a graph, that hand-written nodes keep; by (name, place)."""
    found: list[Constant] = []
    for place, node in enumerate(custom_nodes(tape)):
        owner = class_of(node).__name__ + (f" ({place})" if place else "")
        kept: list[tuple[str, Tensor, Callable[[Tensor], Any]]] = [
            (f"saved tensor {number}", tensor, tensor.data.copy_)
            for number, tensor in enumerate(saved_tensors(node))
            if tensor is not None
        ]
        kept += [(name, tensor, partial(_replace, tensor)) for name, tensor in tensors_on_ctx(node).items()]
        kept += [
            (f"ctx.{name}", torch.tensor(value, dtype=torch.float64), partial(_set_number, node, name))
            for name, value in vars(node).items()
            if isinstance(value, float)
        ]
        found += [Constant(place=name, function=owner, value=tensor, put=put) for name, tensor, put in kept]
    return {(each.function, each.place): each for each in found if _is_constant(each.value, tape)}


def _is_constant(tensor: Tensor, tape: Tape) -> bool:
    numbers = tensor.is_floating_point() or tensor.is_complex()
    dense = tensor.layout is torch.strided and entries_of(tensor) is not None
    return numbers and dense and not _has_graph(tensor, tape)


def _has_graph(tensor: Tensor, tape: Tape) -> bool:
    """True if a kept tensor leads to the inputs. A view of an input, made in forward, requires grad and does not."""
    if not tensor.requires_grad or tensor.grad_fn is not None:
        return tensor.requires_grad
    with torch.enable_grad():
        node = tensor.view_as(tensor).grad_fn
    accumulator: Any = None if node is None else node.next_functions[0][0]
    return any(accumulator is not None and accumulator.variable is leaf for leaf in tape.leaves)


def _replace(tensor: Tensor, value: Tensor) -> None:
    tensor.data = value.detach().clone()  # not copy_: it may be a view of an input


def _set_number(node: object, name: str, value: Tensor) -> None:
    setattr(node, name, float(value))


def _varies_smoothly(subject: Subject, one: Tensor, two: Tensor) -> bool:
    """True if a kept value changes with the inputs, and smoothly, unlike a mask."""
    if one.shape != two.shape:
        return False
    here, there = flatten([one]), flatten([two])
    return 0 < largest(there - here) <= math.sqrt(_step(subject)) * largest(here)


def _step(subject: Subject) -> float:
    """Return the step of the inputs, relative to each entry."""
    return math.pow(eps_of(subject), _STEP_EXPONENT)
