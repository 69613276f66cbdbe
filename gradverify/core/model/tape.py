"""Reverse mode as autograd does it: one recorded forward, and vector-Jacobian products over its graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from gradverify.core.model.problem import Named, Problem, call, fresh, metered
from gradverify.core.model.tensor_kinds import as_plain, is_freed
from gradverify.errors import EvaluationError

_LEAF, _IN_PLACE = "leaf Variable that requires grad", "in-place operation"  # words of torch's refusal
_REFUSALS = (  # torch's words for a gradient that it does not take
    "returned an invalid gradient",
    "returned an incorrect number of gradients",
    "returned a gradient different than None",
    "expected Variable or None",
    "input_is_complex == grad_is_complex",
)
_NOT_TWICE = "it works only through .backward(), and gradients taken that way cannot be differentiated again"
_ONCE_DIFFERENTIABLE = "torch::autograd::Error"  # name of the node that @once_differentiable leaves behind


class Rejected(EvaluationError):
    """Autograd refused what backward returned: a wrong shape, a wrong number of gradients, or no gradient at all."""


class Passing(Enum):
    """How leaves reach the forward."""

    DIRECT = "direct"
    COPIES = "copies"  # the forward overwrites its inputs, which autograd forbids for leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    """One forward and the graph it left."""

    leaves: tuple[Tensor, ...]  # one per primal, requiring grad
    outputs: tuple[Named, ...]  # the outputs that are judged
    cut_off: tuple[str, ...] = ()  # names of the others, which have no graph
    passing: Passing
    shapes: tuple[torch.Size, ...] = ()  # of the outputs, when they were recorded
    nodes: tuple[Any, ...] = ()  # that made them


def record(problem: Problem) -> Tape:
    """Run the forward on fresh leaves with gradients enabled; raises EvaluationError.

    An output without a graph is taken for declared non-differentiable, except where no output has one, and at order
    2, where it is a gradient that does not depend on anything: it stays, and backward claims zero for it.
    """
    leaves, outputs, passing = _run(problem)
    connected = tuple(output for output in outputs if output.tensor.requires_grad)
    judged = connected if connected and problem.order == 1 else outputs
    names = {output.name for output in judged}
    cut_off = tuple(output.name for output in outputs if output.name not in names)
    return Tape(
        leaves=leaves,
        outputs=judged,
        cut_off=cut_off,
        passing=passing,
        shapes=tuple(torch.Size() if output.tensor.is_nested else output.tensor.shape for output in judged),
        nodes=tuple(output.tensor.grad_fn for output in judged),
    )


def is_intact(tape: Tape) -> bool:
    """Tell whether a recorded graph still serves: its outputs may have been overwritten or freed since."""
    outputs = zip(tape.outputs, tape.shapes, tape.nodes, strict=True)
    return all(
        output.tensor.shape == shape and output.tensor.grad_fn is node and not is_freed(output.tensor)
        for output, shape, node in outputs
    )


def call_on_leaves(problem: Problem, leaves: Sequence[Tensor], passing: Passing) -> tuple[Named, ...]:
    """Run the forward on leaves that require grad, or on differentiable copies of them."""
    return call(problem, [leaf.clone() for leaf in leaves] if passing is Passing.COPIES else leaves)


def vjp(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return cotangents·J, one tensor per primal, or None where autograd found no path.

    `cotangents` has one tensor per `tape.outputs`. The graph is kept, and the result is differentiable where
    gradients are enabled. Raises EvaluationError, and Rejected when autograd refuses what backward returned.
    """
    outputs = [output.tensor for output in tape.outputs]
    return pulled_back(problem, tape.leaves, outputs, cotangents, differentiable=torch.is_grad_enabled())


def pulled_back(
    problem: Problem,
    leaves: Sequence[Tensor],
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    *,
    differentiable: bool,
) -> tuple[Tensor | None, ...]:
    """Return what `vjp` returns, of outputs and leaves that are on no tape; differentiable where that is asked for."""
    metered(problem).backward += 1
    pairs = [pair for pair in zip(outputs, cotangents, strict=True) if pair[0].requires_grad]
    if not pairs:
        return (None,) * len(leaves)
    if problem.accumulates and differentiable:
        raise EvaluationError("backward", NotImplementedError(_NOT_TWICE))
    roots, weights = zip(*pairs, strict=True)
    try:
        if problem.accumulates:
            return _accumulated(roots, leaves, weights)
        grads = torch.autograd.grad(
            roots, leaves, grad_outputs=weights, retain_graph=True, create_graph=differentiable, allow_unused=True
        )
        return tuple([None if grad is None else as_plain(grad) for grad in grads])
    except KeyboardInterrupt:
        raise
    except EvaluationError:
        raise
    except BaseException as error:
        raise _classified(error) from error


def only_accumulates(problem: Problem) -> bool:
    """Return True if backward raises under `torch.autograd.grad` and works with `.backward()`.

    A reentrant checkpoint is one that does. Raises EvaluationError when the forward does.
    """
    tapes = record(problem), record(problem)
    ones = [torch.ones_like(output.tensor) for output in tapes[0].outputs]
    try:
        vjp(problem, tapes[0], ones)
    except EvaluationError:
        try:
            vjp(replace(problem, accumulates=True), tapes[1], ones)
        except EvaluationError:
            return False
        return True
    return False


def refuses_second_order(grads: Sequence[Tensor | None]) -> bool:
    """Tell whether the graph of a vjp holds the node that `@once_differentiable` leaves.

    `autograd.grad(..., allow_unused=True)` walks past that node and answers zero, so it has to be looked for.
    """
    found = nodes_behind(grad for grad in grads if grad is not None)
    return any(node.name() == _ONCE_DIFFERENTIABLE for node in found)


def nodes_behind(tensors: Iterable[Tensor]) -> Iterator[Any]:
    """Yield the nodes of the graph that these tensors come from, the nearest first."""
    pending = deque(dict.fromkeys(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None))
    seen: set[Any] = set(pending)
    while pending:
        node = pending.popleft()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)


def _accumulated(
    roots: Sequence[Tensor], leaves: Sequence[Tensor], weights: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Return what `.backward()` puts into the leaves' `.grad`, which is None before and after.

    The `.grad` of other leaves changes; the caller restores it.
    """
    try:
        torch.autograd.backward(roots, weights, retain_graph=True)
        return tuple([None if leaf.grad is None else as_plain(leaf.grad) for leaf in leaves])
    finally:
        for leaf in leaves:
            leaf.grad = None


def _run(problem: Problem) -> tuple[tuple[Tensor, ...], tuple[Named, ...], Passing]:
    for passing in Passing:
        leaves = tuple(fresh(primal.tensor).requires_grad_() for primal in problem.primals)
        try:
            with torch.enable_grad():
                return leaves, call_on_leaves(problem, leaves, passing), passing
        except EvaluationError as error:
            if passing is Passing.COPIES or not _overwrites_leaf(error.original):
                raise
    raise AssertionError("the last way of passing leaves returns or raises")


def _overwrites_leaf(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and _LEAF in str(error) and _IN_PLACE in str(error)


def _classified(error: BaseException) -> EvaluationError:
    text = str(error)
    refused = isinstance(error, RuntimeError) and any(words in text for words in _REFUSALS)
    return Rejected("backward", error) if refused else EvaluationError("backward", error)
