"""GV408: calls share no state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from gradverify.checks.contract import reused_memory, stale_values
from gradverify.checks.contract.forward_run import snapshot
from gradverify.checks.contract.subject import (
    Coordinates,
    Subject,
    as_coordinates,
    gradients_of,
    graph_at,
    new_graph,
    outputs_of,
)
from gradverify.checks.contract.wording import mismatches
from gradverify.core.model.coordinates import is_special, why_unreadable
from gradverify.core.model.problem import copies_of_fixed, fresh, holding
from gradverify.core.model.tape import Tape, vjp
from gradverify.errors import EvaluationError
from gradverify.nested import Named
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV408: a forward or backward at another point changes no gradient, and no gradient is stale_values."""
    first, second = new_graph(subject), new_graph(subject)
    points, other = _elsewhere(subject)
    if other is None:
        return
    found = [*_changed(subject, first)]
    yield from found
    if found:
        return
    outputs = outputs_of(other)  # before backward, which may overwrite or free them
    try:
        grads = _grads(subject, other)
    except EvaluationError:
        return  # backward may raise at the other point
    before = [snapshot(gradient.tensor) for gradient in grads]
    answer = _coordinates(subject, other, grads)
    yield from _changed(subject, second)
    yield from reused_memory.gradients(grads, before)
    if subject.problem.fixed.originals:  # the other call may have had other constants
        try:
            there = graph_at(subject, points)
            outputs = outputs_of(there)
            answer = gradients_of(subject, there, subject.cotangents)
        except EvaluationError:
            return
    yield from stale_values.findings(subject, points, outputs, answer)


def _changed(subject: Subject, tape: Tape) -> Iterator[Finding]:
    got = gradients_of(subject, tape, subject.cotangents)
    claim = "backward answers differently after another call in between: state is carried from one call to the next"
    yield from mismatches(subject, "GV408", claim, got, subject.gradients)


def _grads(subject: Subject, tape: Tape) -> tuple[Named, ...]:
    """Return the gradients in the tensors that backward returned, without None."""
    with torch.no_grad():
        grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in subject.cotangents])
    pairs = zip(subject.primals, grads, strict=True)
    return tuple(Named(name=primal.name, tensor=grad) for primal, grad in pairs if grad is not None)


def _coordinates(subject: Subject, tape: Tape, grads: Sequence[Named]) -> Coordinates:
    found = {gradient.name: gradient.tensor for gradient in grads}
    pairs = zip(subject.primals, tape.leaves, strict=True)
    return tuple(as_coordinates(found.get(primal.name), leaf) for primal, leaf in pairs)


def _elsewhere(subject: Subject) -> tuple[Sequence[Tensor], Tape | None]:
    """Return another point and a graph there, or None if forward raises or changes its outputs' shapes.

    The point is a sum of the values and of the same ones rolled by one, with weights 5/8 and 2/8: not even the sum of
    the values stays. If that fails it is the rolled ones, or the values scaled by 1 + 2**-6. Numbers and masks that are
    not differentiated are others too, where forward accepts that.
    """
    given = copies_of_fixed(subject.problem)
    for moved, fixed in product(_OTHER_POINTS, ([_other_constant(tensor) for tensor in given], given)):
        points = [moved(primal.tensor) for primal in subject.primals]
        try:
            with holding(subject.problem, fixed):
                tape = graph_at(subject, points)
        except EvaluationError:
            continue
        same = [output.tensor.shape for output in tape.outputs] == [c.shape for c in subject.cotangents]
        if same and all(bool(output.tensor.isfinite().all()) for output in tape.outputs):
            return points, tape
    return (), None


def _other_constant(tensor: Tensor) -> Tensor:
    """Return a constant with other numbers; indices stay, as kernels may read out of bounds where they do not fit."""
    if tensor.is_meta or why_unreadable(tensor) or is_special(tensor):
        return tensor
    return _mixed(tensor) if tensor.is_floating_point() else _rolled(tensor) if tensor.dtype is torch.bool else tensor


def _mixed(tensor: Tensor) -> Tensor:
    return (5 * fresh(tensor).contiguous() + 2 * _rolled(tensor)) / 8


def _rolled(tensor: Tensor) -> Tensor:
    if tensor.dtype is not torch.bool and (tensor.numel() < 2 or bool((tensor == tensor.reshape(-1)[0]).all())):
        return _scaled(tensor)
    return tensor.reshape(-1).roll(1).reshape(tensor.shape)


def _scaled(tensor: Tensor) -> Tensor:
    return fresh(tensor).contiguous() * (1 + 2.0**-6)


_OTHER_POINTS: tuple[Callable[[Tensor], Tensor], ...] = (_mixed, _rolled, _scaled)
