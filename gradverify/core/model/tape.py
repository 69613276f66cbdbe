"""Reverse mode with autograd: one recorded forward, vector-Jacobian products over its graph, and a vjp as a problem."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from gradverify.arithmetic.narrowing import casts_left_out
from gradverify.core.model.coordinates import as_plain, is_freed
from gradverify.core.model.generators import own_seed
from gradverify.core.model.problem import Primal, Problem, call, fresh, metered
from gradverify.errors import USER_ERRORS, EvaluationError
from gradverify.nested import Named

# Parts of torch's error for an overwritten leaf.
_LEAF, _IN_PLACE = "leaf Variable that requires grad", "in-place operation"
_REFUSALS = (  # parts of torch's errors for a gradient that it rejects
    "returned an invalid gradient",
    "returned an incorrect number of gradients",
    "returned a gradient different than None",
    "expected Variable or None",
    "input_is_complex == grad_is_complex",
)
_NOT_TWICE = "it works only through .backward(), and gradients taken that way cannot be differentiated again"
_ONCE_DIFFERENTIABLE = "torch::autograd::Error"  # name of the node that @once_differentiable adds to the graph


class Rejected(EvaluationError):
    """Autograd rejected the result of backward: a wrong shape or number of gradients, or not a gradient at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """One forward and its recorded graph."""

    leaves: tuple[Tensor, ...]  # one per primal, requiring grad
    outputs: tuple[Named, ...]  # the outputs verified
    cut_off: tuple[str, ...] = ()  # names of the other outputs, which have no graph
    copied: bool  # True if forward overwrites its inputs and so gets copies; it must not overwrite leaves
    shapes: tuple[torch.Size, ...] = ()  # shapes of the outputs when they were recorded
    nodes: tuple[Any, ...] = ()  # grad_fn of each output when it was recorded


def record(problem: Problem) -> Tape:
    """Run the forward on fresh leaves with gradients enabled; raises EvaluationError.

    An output without a graph is taken for declared non-differentiable and left out, unless no output has a graph. At
    order 2 it is kept: it is a gradient that depends on nothing, and backward claims zero for its derivative.
    """
    tape = record_all(problem)
    connected = tuple(output for output in tape.outputs if output.tensor.requires_grad)
    if not connected or problem.order != 1 or len(connected) == len(tape.outputs):
        return tape
    cut_off = tuple(output.name for output in tape.outputs if not output.tensor.requires_grad)
    return _with_outputs(replace(tape, cut_off=cut_off), connected)


def record_all(problem: Problem) -> Tape:
    """Run the forward as `record` does and keep every output, with or without a graph; raises EvaluationError."""
    leaves, outputs, copied = _run(problem)
    return _with_outputs(Tape(leaves=leaves, outputs=(), copied=copied), outputs)


def is_intact(tape: Tape) -> bool:
    """Return True unless an output was overwritten, resized or freed since the graph was recorded."""
    outputs = zip(tape.outputs, tape.shapes, tape.nodes, strict=True)
    return all(
        output.tensor.shape == shape and output.tensor.grad_fn is node and not is_freed(output.tensor)
        for output, shape, node in outputs
    )


def call_on_leaves(problem: Problem, leaves: Sequence[Tensor], *, copied: bool) -> tuple[Named, ...]:
    """Run the forward on leaves that require grad, or on differentiable copies of them."""
    return call(problem, [leaf.clone() for leaf in leaves] if copied else leaves)


def vjp(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return cotangents·J, one tensor per primal, None for each primal that autograd finds unused.

    `cotangents` has one tensor per `tape.outputs`. The graph is kept, and the result is differentiable if gradients
    are enabled. Raises EvaluationError, and its subclass Rejected if autograd rejects the result of backward.
    """
    outputs = [output.tensor for output in tape.outputs]
    return vjp_of(problem, tape.leaves, outputs, cotangents, differentiable=torch.is_grad_enabled())


def vjp_of(
    problem: Problem,
    leaves: Sequence[Tensor],
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    *,
    differentiable: bool,
) -> tuple[Tensor | None, ...]:
    """Return the result of `vjp` for given outputs and leaves, with a graph if `differentiable`."""
    metered(problem).backward += 1
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
    if not pairs:
        return (None,) * len(leaves)
    if problem.accumulates and differentiable:
        raise EvaluationError("backward", NotImplementedError(_NOT_TWICE))
    roots, weights = zip(*pairs, strict=True)
    try:
        with casts_left_out(problem.is_widened):
            if problem.accumulates:
                return _accumulated(roots, leaves, weights)
            grads = torch.autograd.grad(
                roots, leaves, grad_outputs=weights, retain_graph=True, create_graph=differentiable, allow_unused=True
            )
        return tuple([None if grad is None else as_plain(grad) for grad in grads])
    except EvaluationError:
        raise
    except USER_ERRORS as error:
        raise _classified(error) from error


def has_once_differentiable(grads: Sequence[Tensor | None]) -> bool:
    """Return True if the graph of a vjp contains the node that `@once_differentiable` adds.

    `autograd.grad(..., allow_unused=True)` takes the inputs behind that node for unused instead of raising.
    """
    nodes = graph_nodes(grad for grad in grads if grad is not None)
    return any(node.name() == _ONCE_DIFFERENTIABLE for node in nodes)


def graph_nodes(tensors: Iterable[Tensor]) -> Iterator[Any]:
    """Yield the nodes of the graph of these tensors, breadth first."""
    pending = deque(dict.fromkeys(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None))
    visited: set[Any] = set(pending)
    while pending:
        node = pending.popleft()
        yield node
        for next_node, _ in node.next_functions:
            if next_node is not None and next_node not in visited:
                visited.add(next_node)
                pending.append(next_node)


def function_nodes(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    """Return the nodes of Functions in Python in the graph of these tensors.

    A node looks up its `apply` at every call, so an attribute of that name on the node is called in its place.
    """
    return tuple(node for node in graph_nodes(tensors) if isinstance(node, BackwardCFunction))


def vjp_problem(problem: Problem, tape: Tape, seed: int) -> Problem:
    """Return the problem (primals, cotangents) -> vjp, with random cotangents as further primals.

    Verifying it compares the derivative of backward with differences of backward, not of forward: a wrong first
    derivative that is differentiated correctly passes. A gradient that is None becomes an output of zeros.
    """
    cotangents = random_cotangents(tape, seed)
    names = tuple(output.name for output in tape.outputs)
    primal_count = len(problem.primals)

    def function(*tensors: Tensor) -> dict[str, Tensor]:
        differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        primals = tensors[:primal_count]
        points = [tensor if tensor.requires_grad else tensor.detach().requires_grad_() for tensor in primals]
        with torch.enable_grad():
            found = {output.name: output.tensor for output in call_on_leaves(problem, points, copied=tape.copied)}
        outputs = [found[name] for name in names]
        grads = vjp_of(problem, points, outputs, tensors[primal_count:], differentiable=differentiable)
        return {
            f"grad {primal.name}": torch.zeros_like(point) if grad is None else grad
            for primal, point, grad in zip(problem.primals, points, grads, strict=True)
        }

    return replace(
        problem,
        function=function,
        primals=(*(replace(primal, like=None) for primal in problem.primals), *cotangents),  # `call` restores classes
        outputs=None,
        seed=None,
        order=2,
        cotangents=len(cotangents),
        output="",
    )


def random_cotangents(tape: Tape, seed: int) -> tuple[Primal, ...]:
    """Return a random cotangent for each output, as a primal named after it.

    It is equal to no input that was drawn from the same seed, and to no mask: some mistakes would not show.
    """
    generator = torch.Generator().manual_seed(own_seed(seed + 1))
    found = []
    for output in tape.outputs:
        wide = torch.complex128 if output.tensor.is_complex() else torch.float64
        values = torch.randn(output.tensor.shape, generator=generator, dtype=wide)
        name = output.name.replace("output", "cotangent", 1) if output.name.startswith("output") else output.name
        found.append(Primal(name=name, tensor=values.to(device=output.tensor.device, dtype=output.tensor.dtype)))
    return tuple(found)


def _accumulated(
    roots: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return the gradients that `.backward()` stores in the leaves' `.grad`, which is None before and after.

    The `.grad` of other leaves changes; the caller restores it.
    """
    try:
        torch.autograd.backward(roots, weights, retain_graph=True)
        return tuple([None if leaf.grad is None else as_plain(leaf.grad) for leaf in leaves])
    finally:
        for leaf in leaves:
            leaf.grad = None


def _run(problem: Problem, *, copied: bool = False) -> tuple[tuple[Tensor, ...], tuple[Named, ...], bool]:
    leaves = tuple(fresh(primal.tensor).requires_grad_() for primal in problem.primals)
    try:
        with torch.enable_grad():
            return leaves, call_on_leaves(problem, leaves, copied=copied), copied
    except EvaluationError as error:
        message = str(error.original) if isinstance(error.original, RuntimeError) else ""
        if copied or not (_LEAF in message and _IN_PLACE in message):
            raise
    return _run(problem, copied=True)


def _with_outputs(tape: Tape, outputs: tuple[Named, ...]) -> Tape:
    return replace(
        tape,
        outputs=outputs,
        shapes=tuple(torch.Size() if output.tensor.is_nested else output.tensor.shape for output in outputs),
        nodes=tuple(output.tensor.grad_fn for output in outputs),
    )


def _classified(error: BaseException) -> EvaluationError:
    text = str(error)
    refused = isinstance(error, RuntimeError) and any(words in text for words in _REFUSALS)
    return Rejected("backward", error) if refused else EvaluationError("backward", error)
