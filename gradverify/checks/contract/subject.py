"""The backward under test: its vjps at one point, each on a fresh graph, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract.nodes import Exchange, custom_nodes, recorded_exchanges
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.coordinates import flatten, is_freed
from gradverify.core.model.generators import own_seed
from gradverify.core.model.problem import Primal, Problem, fresh
from gradverify.core.model.tape import Tape, call_on_leaves, vjp
from gradverify.errors import EvaluationError
from gradverify.nested import Named

Cotangents = tuple[Tensor, ...]  # one per judged output
Coordinates = tuple[Tensor, ...]  # real coordinates, float64: of the gradient per primal, or of the value per output


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One problem at one point, and the gradients B(g) that its backward returns there."""

    problem: Problem  # its forward is repeatable if `reuse` is FRESH
    settings: Settings
    reuse: Reuse  # SHARED: every vjp uses one graph, because the forward is random or to save time
    tape: Tape  # names and shapes of the outputs; the graph of every vjp if `reuse` is SHARED
    hand_written: bool  # True if there is a custom Function in the graph
    cotangents: Cotangents  # normally distributed
    gradients: Coordinates  # B(cotangents)
    exchanges: tuple[Exchange, ...]  # calls of hand-written backwards during B(cotangents)
    gradients_of_zeros: Coordinates  # B(0), which should be zero; zeros until `with_zero_and_ones`
    gradients_of_ones: (
        Coordinates  # B(1), the gradient that `.sum().backward()` computes; empty until `with_zero_and_ones`
    )
    noise: tuple[float, ...] = ()  # per primal: noise level of its gradient's entries
    dtypes: frozenset[torch.dtype] = frozenset()  # of inputs, outputs and, once measured, casts in between

    @property
    def primals(self) -> tuple[Primal, ...]:
        """The differentiated inputs."""
        return self.problem.primals


def subject_of(problem: Problem, settings: Settings, tape: Tape, reuse: Reuse) -> Subject:
    """Return the subject with its gradients for random cotangents, zeros and ones; raises EvaluationError."""
    return with_zero_and_ones(with_first_gradients(problem, settings, tape, reuse))


def with_first_gradients(problem: Problem, settings: Settings, tape: Tape, reuse: Reuse) -> Subject:
    """Return a subject with its gradients for random cotangents only; raises EvaluationError."""
    generator = torch.Generator().manual_seed(own_seed(settings.seed + 1))
    draft = Subject(
        problem=problem,
        settings=settings,
        reuse=reuse,
        tape=tape,
        hand_written=bool(custom_nodes(tape)),
        cotangents=random_like([output.tensor for output in tape.outputs], generator),
        gradients=(),
        exchanges=(),
        gradients_of_zeros=(),
        gradients_of_ones=(),
        noise=(0.0,) * len(problem.primals),
        dtypes=frozenset(
            entry.dtype for entry in (*(p.tensor for p in problem.primals), *(o.tensor for o in tape.outputs))
        ),
    )
    tape_of_vjp = graph_for_vjp(draft)
    with recorded_exchanges(custom_nodes(tape_of_vjp)) as exchanges:
        answer = gradients_of(draft, tape_of_vjp, draft.cotangents)
    placeholder = tuple(torch.zeros_like(entry) for entry in answer)  # `with_zero_and_ones` computes B(0)
    return replace(draft, gradients=answer, exchanges=tuple(exchanges), gradients_of_zeros=placeholder)


def with_zero_and_ones(subject: Subject) -> Subject:
    """Return the subject with B(0) and B(1); raises EvaluationError."""
    constant = gradients_for(subject, [torch.zeros_like(cotangent) for cotangent in subject.cotangents])
    return replace(subject, gradients_of_zeros=constant, gradients_of_ones=gradients_for(subject, ones_like(subject)))


def graph_for_vjp(subject: Subject) -> Tape:
    """Return the graph for the next vjp: the shared one or a new one, see `reuse`; raises EvaluationError."""
    return subject.tape if subject.reuse is Reuse.SHARED else new_graph(subject)


def new_graph(subject: Subject) -> Tape:
    """Return a new graph at the subject's point; raises EvaluationError."""
    return graph_at(subject, [primal.tensor for primal in subject.primals])


def graph_at(subject: Subject, points: Sequence[Tensor]) -> Tape:
    """Return a graph at `points`, one per primal; their memory layout is kept. Raises EvaluationError."""
    return graph_with_leaves(subject, points, range(len(points)))


def graph_with_leaves(subject: Subject, points: Sequence[Tensor], wanted: Sequence[int]) -> Tape:
    """Return a graph at `points` whose leaves are the primals numbered in `wanted`; raises EvaluationError.

    The other primals do not require grad.
    """
    inputs = [fresh(point).requires_grad_(number in wanted) for number, point in enumerate(points)]
    with torch.enable_grad():
        outputs = call_on_leaves(subject.problem, inputs, copied=subject.tape.copied)
    return Tape(
        leaves=tuple(inputs[number] for number in wanted),
        outputs=judged_outputs(subject, outputs),
        copied=subject.tape.copied,
    )


def judged_outputs(subject: Subject, outputs: Sequence[Named]) -> tuple[Named, ...]:
    """Return the outputs of a call that the subject's tape has too, matched by name."""
    names = {output.name for output in subject.tape.outputs}
    return tuple(output for output in outputs if output.name in names)


def gradients_for(subject: Subject, cotangents: Sequence[Tensor]) -> Coordinates:
    """Return B(cotangents); raises EvaluationError."""
    return gradients_of(subject, graph_for_vjp(subject), cotangents)


def gradients_of(subject: Subject, tape: Tape, cotangents: Sequence[Tensor]) -> Coordinates:
    """Return the gradient of each leaf of this graph; backward gets copies of the cotangents.

    Raises EvaluationError.
    """
    with torch.no_grad():
        grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in cotangents])
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def as_coordinates(grad: Tensor | None, leaf: Tensor) -> Tensor:
    """Return a gradient's real coordinates, float64, zeros if it is None; cast to the leaf's dtype first."""
    if grad is None:
        grad = torch.zeros_like(leaf)
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return flatten([dense.detach().to(leaf.dtype)]).clone()


def outputs_of(tape: Tape) -> Coordinates:
    """Return the real coordinates of each output of a graph; raises EvaluationError if an output's memory is freed."""
    freed = next((output.name for output in tape.outputs if is_freed(output.tensor)), None)
    if freed is not None:
        raise EvaluationError("forward", RuntimeError(f"the memory of {freed} is freed when forward returns it"))
    return tuple(flatten([output.tensor.detach()]).clone() for output in tape.outputs)


def zero_except(subject: Subject, number: int) -> Cotangents:
    """Return the cotangents with all set to zero but that of output `number`."""
    return tuple(
        cotangent if place == number else torch.zeros_like(cotangent)
        for place, cotangent in enumerate(subject.cotangents)
    )


def ones_like(subject: Subject) -> Cotangents:
    """Return cotangents of ones, as `.sum().backward()` sends them."""
    return tuple(torch.ones_like(cotangent) for cotangent in subject.cotangents)


def random_like(tensors: Sequence[Tensor], generator: torch.Generator) -> Cotangents:
    """Return normally distributed values with the shapes, dtypes and devices of `tensors`, contiguous."""
    found = []
    for tensor in tensors:
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        values = torch.randn(tensor.shape, generator=generator, dtype=wide)
        found.append(values.to(device=tensor.device, dtype=tensor.dtype))
    return tuple(found)
