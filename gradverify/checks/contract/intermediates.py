"""Intermediates of forward that a backward keeps and uses, and that autograd takes for constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gradverify.checks.contract.nodes import class_of, custom_nodes, held, saved
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Answer, Subject, as_coordinates, graph_at
from gradverify.checks.contract.wording import SIMILAR, allowance, minus
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.problem import fresh
from gradverify.core.model.tape import Tape, vjp
from gradverify.core.model.tensor_kinds import entries_of

_STEP = 0.4  # inputs move by eps to this power, relative: more than rounding, little enough to stay on a branch
_MOST = 8  # intermediates that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A value that a node keeps and autograd takes for a constant."""

    place: str  # saved tensor 0, ctx.slope
    owner: str  # the Function
    value: Tensor
    put: Callable[[Tensor], Any]  # replaces the value


def used_as_constants(subject: Subject) -> tuple[Constant, ...]:
    """Return the intermediates that backward uses as constants, also when it is differentiated.

    Each is given the value that it has at a point close by, while all else stays: backward must not notice. Raises
    EvaluationError.
    """
    here, there = (_constants(moved(subject, numbers)) for numbers in ((), range(len(subject.primals))))
    follow = [name for name in here if name in there and _follows(subject, here[name].value, there[name].value)]
    if not follow:
        return ()
    before = answer_with_graph(subject, moved(subject, ()))
    found = []
    for name in follow[:_MOST]:
        tape = moved(subject, ())
        constant = _constants(tape)[name]
        constant.put(there[name].value)
        if differ(subject, answer_with_graph(subject, tape), before):
            found.append(constant)
    return tuple(found)


def moved(subject: Subject, numbers: Sequence[int]) -> Tape:
    """Return a graph with some primals moved a little; what is saved shares no memory with inputs and outputs."""
    factor = 1.0 + _step(subject)
    points = [
        fresh(primal.tensor).contiguous() * (factor if number in numbers else 1.0)
        for number, primal in enumerate(subject.primals)
    ]
    with saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
        return graph_at(subject, points)


def answer_with_graph(subject: Subject, tape: Tape) -> Answer:
    """Return B(g) as it is where backward is differentiated; raises EvaluationError."""
    with torch.enable_grad():
        grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in subject.cotangents])
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def differ(subject: Subject, one: Answer, other: Answer) -> bool:
    """Tell whether two answers differ by more than rounding."""
    return any(
        largest(apart) > allowance(subject, number, 1.0, one[number], other[number], power=SIMILAR)
        for number, apart in enumerate(minus(one, other))
    )


def eps_of(subject: Subject) -> float:
    """Return the largest eps of the dtypes that the computation goes through."""
    return max(float(torch.finfo(dtype).eps) for dtype in subject.dtypes)


def _constants(tape: Tape) -> dict[tuple[str, str], Constant]:
    """Return the floating tensors without a graph, and the numbers, that hand-written nodes save or hold."""
    found: list[Constant] = []
    for place, node in enumerate(custom_nodes(tape)):
        owner = class_of(node).__name__ + (f" ({place})" if place else "")
        kept: list[tuple[str, Tensor, Callable[[Tensor], Any]]] = [
            (f"saved tensor {number}", tensor, tensor.data.copy_)
            for number, tensor in enumerate(saved(node))
            if tensor is not None
        ]
        kept += [(name, tensor, partial(_replace, tensor)) for name, tensor in held(node).items()]
        kept += [
            (f"ctx.{name}", torch.tensor(value, dtype=torch.float64), partial(_set_number, node, name))
            for name, value in vars(node).items()
            if isinstance(value, float)
        ]
        found += [Constant(place=name, owner=owner, value=tensor, put=put) for name, tensor, put in kept]
    return {(each.owner, each.place): each for each in found if _is_constant(each.value)}


def _is_constant(tensor: Tensor) -> bool:
    numbers = tensor.is_floating_point() or tensor.is_complex()
    dense = tensor.layout is torch.strided and entries_of(tensor) is not None
    return numbers and dense and not tensor.requires_grad


def _replace(tensor: Tensor, value: Tensor) -> None:
    tensor.data = value.detach().clone()  # it may be a view of an input, which stays


def _set_number(node: object, name: str, value: Tensor) -> None:
    setattr(node, name, float(value))


def _follows(subject: Subject, one: Tensor, two: Tensor) -> bool:
    """Tell whether a value moves smoothly with the inputs, as a mask does not."""
    if one.shape != two.shape:
        return False
    here, there = flatten([one]), flatten([two])
    return 0 < largest(there - here) <= math.sqrt(_step(subject)) * largest(here)


def _step(subject: Subject) -> float:
    """Return by how much inputs move, relative to each of them."""
    return math.pow(eps_of(subject), _STEP)
