"""The backward under question: asked on a fresh graph each time, with what its answers vary by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract.nodes import Exchange, custom_nodes, overheard
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.problem import Named, Primal, Problem, fresh
from gradverify.core.model.tape import Tape, call_on_leaves, vjp
from gradverify.core.model.tensor_kinds import is_freed
from gradverify.errors import EvaluationError

Cotangents = tuple[Tensor, ...]  # one per judged output
Answer = tuple[Tensor, ...]  # per primal its gradient's real coordinates, float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One problem at one point, and what its backward said there."""

    problem: Problem  # repeatable, where `reuse` is FRESH
    settings: Settings
    reuse: Reuse  # SHARED: the forward is random, so that every question goes to one graph
    tape: Tape  # a graph of its own: names, shapes, and the one graph where it is shared
    hand_written: bool  # there is a custom Function in the graph
    cotangents: Cotangents  # random, normal
    answer: Answer  # B(cotangents)
    heard: tuple[Exchange, ...]  # how hand-written backwards came to it
    constant: Answer  # B(0), which should be zero
    ones: Answer  # B(1), which is what `.sum().backward()` asks for
    noise: tuple[float, ...] = ()  # per primal, what rounding may change in an entry of the answer
    dtypes: frozenset[torch.dtype] = frozenset()  # that the computation goes through

    @property
    def primals(self) -> tuple[Primal, ...]:
        """The differentiated inputs."""
        return self.problem.primals


def subject_of(problem: Problem, settings: Settings, tape: Tape, reuse: Reuse) -> Subject:
    """Ask backward for random cotangents, for zeros and for ones; raises EvaluationError."""
    return completed(opened(problem, settings, tape, reuse))


def opened(problem: Problem, settings: Settings, tape: Tape, reuse: Reuse) -> Subject:
    """Ask backward for the first time; raises EvaluationError."""
    generator = torch.Generator().manual_seed(settings.seed)
    draft = Subject(
        problem=problem,
        settings=settings,
        reuse=reuse,
        tape=tape,
        hand_written=bool(custom_nodes(tape)),
        cotangents=random_like([output.tensor for output in tape.outputs], generator),
        answer=(),
        heard=(),
        constant=(),
        ones=(),
        noise=(0.0,) * len(problem.primals),
        dtypes=frozenset(
            entry.dtype for entry in (*(p.tensor for p in problem.primals), *(o.tensor for o in tape.outputs))
        ),
    )
    own = graph(draft)
    with overheard(custom_nodes(own)) as heard:
        answer = answer_of(draft, own, draft.cotangents)
    unknown = tuple(torch.zeros_like(entry) for entry in answer)  # B(0), until it is asked for
    return replace(draft, answer=answer, heard=tuple(heard), constant=unknown)


def completed(subject: Subject) -> Subject:
    """Return the subject with B(0) and B(1); raises EvaluationError."""
    constant = ask(subject, [torch.zeros_like(cotangent) for cotangent in subject.cotangents])
    return replace(subject, constant=constant, ones=ask(subject, ones_like(subject)))


def graph(subject: Subject) -> Tape:
    """Return a graph to ask: a new one, where the forward repeats."""
    return subject.tape if subject.reuse is Reuse.SHARED else new_graph(subject)


def new_graph(subject: Subject) -> Tape:
    """Run the forward once more at the same point; raises EvaluationError."""
    return graph_at(subject, [primal.tensor for primal in subject.primals])


def graph_at(subject: Subject, points: Sequence[Tensor]) -> Tape:
    """Run the forward at other points in their own layouts; raises EvaluationError."""
    return graph_for(subject, points, range(len(points)))


def graph_for(subject: Subject, points: Sequence[Tensor], wanted: Sequence[int]) -> Tape:
    """Run the forward where only some primals require grad: these are the tape's leaves; raises EvaluationError."""
    inputs = [fresh(point).requires_grad_(number in wanted) for number, point in enumerate(points)]
    with torch.enable_grad():
        outputs = call_on_leaves(subject.problem, inputs, subject.tape.passing)
    return Tape(
        leaves=tuple(inputs[number] for number in wanted),
        outputs=judged(subject, outputs),
        passing=subject.tape.passing,
    )


def judged(subject: Subject, outputs: Sequence[Named]) -> tuple[Named, ...]:
    """Return those of a call's outputs that the subject is judged by."""
    names = {output.name for output in subject.tape.outputs}
    return tuple(output for output in outputs if output.name in names)


def ask(subject: Subject, cotangents: Sequence[Tensor]) -> Answer:
    """Return B(cotangents); raises EvaluationError."""
    return answer_of(subject, graph(subject), cotangents)


def answer_of(subject: Subject, tape: Tape, cotangents: Sequence[Tensor]) -> Answer:
    """Return what this graph's backward says, per leaf; backward gets copies. Raises EvaluationError."""
    with torch.no_grad():
        grads = vjp(subject.problem, tape, [fresh(cotangent) for cotangent in cotangents])
    return tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, tape.leaves, strict=True))


def as_coordinates(grad: Tensor | None, leaf: Tensor) -> Tensor:
    """Return a gradient's real coordinates, zeros where there is none."""
    if grad is None:
        grad = torch.zeros_like(leaf)
    dense = grad.to_dense() if grad.layout is not torch.strided else grad
    return flatten([dense.detach().to(leaf.dtype)]).clone()


def outputs_of(tape: Tape) -> Answer:
    """Return the real coordinates of a graph's outputs; raises EvaluationError if the memory of one is freed."""
    freed = next((output.name for output in tape.outputs if is_freed(output.tensor)), None)
    if freed is not None:
        raise EvaluationError("forward", RuntimeError(f"the memory of {freed} is freed when forward returns it"))
    return tuple(flatten([output.tensor.detach()]).clone() for output in tape.outputs)


def zero_except(subject: Subject, number: int) -> Cotangents:
    """Return the cotangents with all but one set to zero."""
    return tuple(
        cotangent if place == number else torch.zeros_like(cotangent)
        for place, cotangent in enumerate(subject.cotangents)
    )


def ones_like(subject: Subject) -> Cotangents:
    """Return the cotangents of a sum."""
    return tuple(torch.ones_like(cotangent) for cotangent in subject.cotangents)


def random_like(tensors: Sequence[Tensor], generator: torch.Generator) -> Cotangents:
    """Return normal values in the shapes and dtypes of `tensors`, contiguous."""
    found = []
    for tensor in tensors:
        wide = torch.complex128 if tensor.is_complex() else torch.float64
        values = torch.randn(tensor.shape, generator=generator, dtype=wide)
        found.append(values.to(device=tensor.device, dtype=tensor.dtype))
    return tuple(found)
