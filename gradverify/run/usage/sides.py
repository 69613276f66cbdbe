"""The two functions that are measured, and one forward and backward of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.model.problem import Meter, Problem, fresh
from gradverify.core.model.tape import Tape, call_on_leaves, record_all
from gradverify.interception import plain_forwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two functions."""

    problem: Problem
    names: frozenset[str]  # inputs that it is differentiated by
    copied: bool  # see `Tape`
    running: Callable[[], AbstractContextManager[None]]  # entered around every call
    plain: bool = False  # True if its graph is to hold no hand-written Function


def function_side(problem: Problem) -> Side:
    """Return the function itself; raises EvaluationError."""
    return _side(problem, problem, nullcontext)


def other_side(problem: Problem) -> Side:
    """Return the reference or, without one, the function with its forward as plain code; raises EvaluationError."""
    if problem.reference is not None:
        same = replace(problem.reference, seed=problem.seed, deadline=problem.deadline)
        return _side(problem, same, nullcontext)
    return replace(_side(problem, problem, plain_forwards), plain=True)


def new_leaves(side: Side) -> tuple[Tensor, ...]:
    """Return copies of the inputs; those that the function is not differentiated by require no grad."""
    primals = side.problem.primals
    return tuple(fresh(primal.tensor).requires_grad_(primal.name in side.names) for primal in primals)


def run_forward(side: Side, leaves: Sequence[Tensor]) -> Tape:
    """Return the outputs that have a graph; raises EvaluationError."""
    with torch.enable_grad(), side.running():
        outputs = call_on_leaves(side.problem, leaves, copied=side.copied)
    connected = tuple(output for output in outputs if output.tensor.requires_grad)
    return Tape(leaves=tuple(leaves), outputs=connected, copied=side.copied)


def run_backward(side: Side, tape: Tape, cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Return the gradients by the inputs in `side.names`, and free the graph; raises what backward raises."""
    wanted = [leaf for leaf in tape.leaves if leaf.requires_grad]
    outputs = [output.tensor for output in tape.outputs]
    with torch.no_grad(), side.running():
        return torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)


def ones_for(tape: Tape) -> list[Tensor]:
    """Return a cotangent of ones for each output."""
    return [torch.ones_like(output.tensor) for output in tape.outputs]


def _side(problem: Problem, measured: Problem, running: Callable[[], AbstractContextManager[None]]) -> Side:
    uncounted = replace(measured, meter=Meter())
    with running():
        copied = record_all(uncounted).copied
    names = frozenset(primal.name for primal in problem.primals)
    return Side(problem=uncounted, names=names, copied=copied, running=running)
