"""GV501 and GV502: why a backward cannot be differentiated, where nothing says so."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import class_of, custom_nodes, held, saved
from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.subject import Cotangents, Subject, as_coordinates, graph_at, new_graph
from gradverify.checks.contract.wording import raised, remark
from gradverify.core.function.coordinates import flatten
from gradverify.core.function.kinds import entries_of
from gradverify.core.function.problem import fresh
from gradverify.core.function.tape import refuses_second_order, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_STEP = 2.0**-20  # relative displacement that a smooth intermediate feels
_SMOOTH = 1e-3  # largest relative change that it may cause
_PART = 1e-6  # of <g, B'(g)> that may be missing
_ROUNDING = 32.0  # units of rounding that may be


def findings(subject: Subject) -> Iterator[Finding]:
    """GV501, GV502: a backward that is differentiated without a word is differentiable."""
    if not subject.hand_written:
        return
    cotangents = tuple(fresh(cotangent).requires_grad_() for cotangent in subject.cotangents)
    try:
        with torch.enable_grad():
            grads = vjp(subject.problem, new_graph(subject), cotangents)
            if refuses_second_order(grads):
                return  # declared
            missing = _missing(subject, cotangents, grads)
    except EvaluationError as error:
        if not isinstance(error.original, NotImplementedError):  # which declares it
            yield remark("GV501", f"backward cannot be differentiated: with create_graph, {raised(error)}")
        return
    if missing:
        text = "backward is not differentiable by its cotangent and does not say so: @once_differentiable would"
        yield remark("GV501", text)
        return
    yield from _intermediates(subject)


def _missing(subject: Subject, cotangents: Cotangents, grads: tuple[Tensor | None, ...]) -> bool:
    """Tell whether <w, B(g)> is not <g, its derivative by g>, as it is for every linear B."""
    leaves = [primal.tensor for primal in subject.primals]
    total = sum((grad.abs().square().sum() for grad in grads if grad is not None), torch.zeros(()))
    expected = sum(float(as_coordinates(grad, leaf).square().sum()) for grad, leaf in zip(grads, leaves, strict=True))
    if expected == 0 or any(largest(constant) > 0 for constant in subject.constant):
        return False
    if not total.requires_grad:
        return True
    # the derivative of |B(g)|² by g, times g, is 2|B(g)|²
    derivatives = _derivatives(total, cotangents)
    found = sum(
        float((as_coordinates(derivative, cotangent) * flatten([cotangent])).sum())
        for derivative, cotangent in zip(derivatives, cotangents, strict=True)
    )
    eps = max(torch.finfo(dtype).eps for dtype in subject.dtypes)
    return abs(found - 2 * expected) > max(_PART, _ROUNDING * eps) * expected


def _derivatives(total: Tensor, cotangents: Cotangents) -> tuple[Tensor | None, ...]:
    try:
        return torch.autograd.grad(total, cotangents, allow_unused=True)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of a backward that backward called, and so of the user's
        raise EvaluationError("backward", error) from error


def _intermediates(subject: Subject) -> Iterator[Finding]:
    here, there = (_constants(subject, factor) for factor in (1.0, 1.0 + _STEP))
    for name, tensor in here.items():
        other = there.get(name)
        if other is not None and other.shape == tensor.shape and _follows(tensor, other):
            yield remark(
                "GV502",
                f"{name} depends on the inputs and is a constant for autograd: where backward uses it, backward's own "
                "derivative misses its part; save inputs or outputs, or declare @once_differentiable",
            )


def _constants(subject: Subject, factor: float) -> dict[str, Tensor]:
    """Return the values of floating tensors without a graph that nodes saved or hold."""
    try:
        tape = graph_at(subject, [fresh(primal.tensor).contiguous() * factor for primal in subject.primals])
    except EvaluationError:
        return {}
    found = {}
    for place, node in enumerate(custom_nodes(tape)):
        owner = class_of(node).__name__ + (f" ({place})" if place else "")
        tensors = {f"saved tensor {number}": tensor for number, tensor in enumerate(saved(node)) if tensor is not None}
        for name, tensor in (tensors | held(node)).items():
            floating = tensor.is_floating_point() or tensor.is_complex()
            values = None if tensor.requires_grad or not floating else entries_of(tensor)
            if values is not None:
                found[f"{name} of {owner}"] = values
    return found


def _follows(tensor: Tensor, other: Tensor) -> bool:
    one, two = flatten([tensor]), flatten([other])
    change = largest(two - one)
    return 0 < change <= _SMOOTH * largest(one)
