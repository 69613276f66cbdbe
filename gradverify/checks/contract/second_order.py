"""GV501, GV502, GV506: what backward gives with create_graph, and its own derivative."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.intermediates import (
    Constant,
    eps_of,
    gradients_differ,
    gradients_with_graph,
    graph_at_scaled_inputs,
    graph_near,
    used_as_constants,
)
from gradverify.checks.contract.nodes import class_of, custom_nodes, custom_nodes_of
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import (
    Cotangents,
    Subject,
    as_coordinates,
    gradients_for,
    gradients_of,
    new_graph,
)
from gradverify.checks.contract.wording import SIMILAR_EXPONENT, difference, mismatches, raised, remark, scaled
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.problem import fresh
from gradverify.core.model.tape import Tape, has_once_differentiable, vjp
from gradverify.errors import USER_ERRORS, EvaluationError
from gradverify.result import Finding

_RTOL = 1e-6  # relative tolerance on the derivative of |B(g)|² along g
_POINTS, _STEADY = 3, 0.25  # points near by, and the relative change of a difference that is not rounding
_ROUNDING_ULPS = 32.0  # the same, in eps of the computation's coarsest dtype
_REMEDY = "differentiate it properly, or mark backward @once_differentiable"
_WITHOUT_GRAPH = f"without a graph (under no_grad, or from .detach(), .data or .item()); {_REMEDY}"


def findings(subject: Subject) -> Iterator[Finding]:
    """GV501, GV502, GV506: with create_graph, the gradient is the same, and autograd differentiates it correctly."""
    if not subject.hand_written:
        return
    cotangents = tuple(fresh(cotangent).requires_grad_() for cotangent in subject.cotangents)
    try:
        with torch.enable_grad():
            tape = new_graph(subject)
            grads = vjp(subject.problem, tape, cotangents)
            unlike = _unlike(subject, grads)
            if unlike:
                yield from unlike
                return
            if has_once_differentiable(grads):
                return  # declared once-differentiable
            squared_norm = _squared_norm(grads)
            if _misses_cotangent(subject, cotangents, grads, squared_norm):
                yield remark("GV501", f"{_first_suspects(subject, grads)}, {_WITHOUT_GRAPH}")
                return
            unreached = _unreached(squared_norm, tape)
    except EvaluationError as error:
        if not isinstance(error.original, NotImplementedError):  # which declares that there is no second derivative
            yield remark("GV501", f"backward cannot be differentiated: with create_graph, {raised(error)}")
        return
    try:
        used = used_as_constants(subject)
        lost = () if used else _lost(subject, unreached)
    except EvaluationError:  # raised at a nearby point, or with an intermediate from there
        return
    if used:
        yield remark("GV502", _intermediates(used))
    elif lost:
        names = " and ".join(lost)
        yield remark("GV501", f"the part of backward that depends on {names} is computed {_WITHOUT_GRAPH}")


def _unlike(subject: Subject, grads: Sequence[Tensor | None]) -> list[Finding]:
    """GV506: the gradient with create_graph is that without.

    Where it is made of terms that cancel, the two may be rounded otherwise, and differ otherwise at each point near by.
    """
    leaves = [primal.tensor for primal in subject.primals]
    got = tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, leaves, strict=True))
    if not gradients_differ(subject, got, subject.gradients):
        return []
    for number in range(1, _POINTS + 1):
        tapes = [graph_near(subject, number) for _ in range(2)]
        there = gradients_with_graph(subject, tapes[0]), gradients_of(subject, tapes[1], subject.cotangents)
        pairs = zip(got, subject.gradients, difference(*there), strict=True)
        got = tuple(torch.where((one - other - d).abs() <= _STEADY * d.abs(), one, other) for one, other, d in pairs)
    claim = "backward answers differently with create_graph"
    return list(mismatches(subject, "GV506", claim, got, subject.gradients, power=SIMILAR_EXPONENT))


def _squared_norm(grads: Sequence[Tensor | None]) -> Tensor:
    """Return |B(g)|²."""
    return sum((grad.abs().double().square().sum() for grad in grads if grad is not None), torch.zeros(()))


def _first_suspects(subject: Subject, grads: Sequence[Tensor | None]) -> str:
    """Return what may be wrong with the derivative by the cotangent, up to "without a graph"."""
    own = {class_of(node) for node in custom_nodes(subject.tape)}
    nodes = custom_nodes_of(grad for grad in grads if grad is not None)
    called = sorted({class_of(node).__name__ for node in nodes if class_of(node) not in own})
    what = "backward computes its gradient, or a part of it"
    return f"the derivative of {' or '.join(called)}, which backward calls, is wrong, or {what}" if called else what


def _misses_cotangent(
    subject: Subject, cotangents: Cotangents, grads: tuple[Tensor | None, ...], squared_norm: Tensor
) -> bool:
    """True if autograd's derivative of |B(g)|² along g is not 2·|B(g)|², as it is for every linear B.

    False where it is nan: something divides zero by zero, which is no missing graph.
    """
    leaves = [primal.tensor for primal in subject.primals]
    expected = sum(float(as_coordinates(grad, leaf).square().sum()) for grad, leaf in zip(grads, leaves, strict=True))
    if (
        expected == 0
        or not math.isfinite(expected)
        or any(largest(constant) > 0 for constant in subject.gradients_of_zeros)
    ):
        return False
    if squared_norm.requires_grad:
        # <d|B(g)|²/dg, g> = 2·|B(g)|² (Euler, homogeneous of degree 2)
        derivatives = _derivatives(squared_norm, cotangents)
        found = sum(
            float((as_coordinates(derivative, cotangent) * flatten([cotangent])).sum())
            for derivative, cotangent in zip(derivatives, cotangents, strict=True)
        )
        if math.isnan(found) or abs(found - 2 * expected) <= max(_RTOL, _ROUNDING_ULPS * eps_of(subject)) * expected:
            return False
    twice = gradients_for(subject, [2 * cotangent for cotangent in subject.cotangents])
    return not gradients_differ(
        subject, twice, scaled(subject.gradients, 2.0)
    )  # else B is not linear, which GV301 to GV305 report


def _unreached(squared_norm: Tensor, tape: Tape) -> tuple[int, ...]:
    """Return the numbers of the leaves without a path from |B(g)|² in autograd's graph; empty if it has no graph."""
    if not squared_norm.requires_grad:
        return ()
    derivatives = _derivatives(squared_norm, tape.leaves)
    return tuple(number for number, derivative in enumerate(derivatives) if derivative is None)


def _derivatives(squared_norm: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    try:
        return torch.autograd.grad(squared_norm, tensors, retain_graph=True, allow_unused=True)
    except USER_ERRORS as error:  # raised by user code in the double backward
        raise EvaluationError("backward", error) from error


def _lost(subject: Subject, unreached: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the `unreached` leaves on which B(g) depends numerically; raises EvaluationError."""
    if not unreached:
        return ()
    here = gradients_with_graph(subject, graph_at_scaled_inputs(subject, ()))
    if not gradients_differ(subject, gradients_with_graph(subject, graph_at_scaled_inputs(subject, unreached)), here):
        return ()
    dependent = (
        number
        for number in unreached
        if gradients_differ(subject, gradients_with_graph(subject, graph_at_scaled_inputs(subject, [number])), here)
    )
    return tuple(subject.primals[number].name for number in dependent)


def _intermediates(used: Sequence[Constant]) -> str:
    """Return the message of GV502."""
    attributes = [constant.place.startswith("ctx.") for constant in used]
    kept = (
        "saved" if not any(attributes) else "kept as an attribute on ctx" if all(attributes) else "saved or kept on ctx"
    )
    names = ", ".join(f"{constant.place} of {constant.function}" for constant in used)
    return (
        f"an intermediate is {kept}: autograd treats {names} as constant, so backward's own derivative misses what"
        f" depends on the inputs through {'it' if len(used) == 1 else 'them'}; recompute it in backward from saved"
        " inputs or outputs, or mark backward @once_differentiable"
    )
