"""GV504: for Functions that define a vmap rule, a batch gives the same as a loop over its entries."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._functorch import autograd_function as rules

from gradverify.case import Settings
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.checks.contract.noise import same_output
from gradverify.checks.contract.subject import (
    Coordinates,
    Subject,
    as_coordinates,
    gradients_of,
    graph_at,
    judged_outputs,
    outputs_of,
)
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.checks.failures import evaluations, skipped
from gradverify.core.model.problem import Named, Problem, call, fresh
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "batching"
_SCALES = (1.0, 1 + 2.0**-7, 1 - 2.0**-6)  # the entries of a batch, as multiples of the point


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare torch.vmap with a loop, outputs and gradients. Raises EvaluationError."""
    if problem.primals and not defines_vmap(record(problem)):
        return skipped(NAME, problem, "not every Function here defines vmap or generate_vmap_rule")
    subject = subject_for(problem, settings)
    if isinstance(subject, str):
        return skipped(NAME, problem, subject)
    subject = with_measured_noise(subject)
    refusals: list[str] = []
    found = tuple(findings(subject, refusals))
    if not found and refusals:
        return skipped(NAME, subject.problem, f"vmap ends on the way: {refusals[0]}")
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else "vmap and a loop agree",
        evaluations=evaluations(subject.problem),
        findings=found,
    )


def defines_vmap(tape: Tape) -> bool:
    """True if every Function in the graph defines how it is batched."""
    nodes = custom_nodes(tape)
    return bool(nodes) and all(_is_batched(class_of(node)) for node in nodes)


def findings(subject: Subject, refusals: list[str] | None = None) -> Iterator[Finding]:
    """Yield GV504 findings, with all inputs batched in the first dimension, each alone, and all in the last dimension.

    If vmap raises outside of the Functions' own rules, or a rule raises NotImplementedError, this is added to
    `refusals`.
    """
    if subject.problem.seed is not None:
        return  # every entry of a batch would draw its own numbers
    count = len(subject.primals)
    everything = tuple(range(count))
    chosen = [(everything, 0)] + ([((number,), 0) for number in everything] if count > 1 else [])
    if any(primal.tensor.dim() for primal in subject.primals):
        chosen.append((everything, -1))
    for batched, dim in chosen:
        try:
            found = list(_compared(subject, batched, dim))
        except EvaluationError as error:
            if refusals is not None:
                refusals.append(raised(error))
            return
        yield from found
        if found:
            return


def _is_batched(function: type[torch.autograd.Function]) -> bool:
    return function.generate_vmap_rule or function.vmap is not torch.autograd.Function.vmap


def _compared(subject: Subject, batched: tuple[int, ...], dim: int) -> Iterator[Finding]:
    """Compare vmap over some inputs with a loop; raises EvaluationError if vmap fails outside of their rules."""
    names = ", ".join(subject.primals[number].name for number in batched) + (" in the last dimension" if dim else "")
    try:
        loop = _loop(subject, batched)
    except EvaluationError:
        return
    try:
        batch = _batch(subject, batched, dim, loop)
    except EvaluationError as error:
        if not _raised_by_rule(error):
            raise
        yield failure("GV504", f"vmap over {names}: {raised(error)}")
        return
    for output, one, other in zip(subject.tape.outputs, batch.outputs, loop.outputs, strict=True):
        if not same_output(subject, one, other):
            yield failure("GV504", f"vmap over {names}: {output.name} is not what a loop gives", of=output.name)
            return
    claim = f"vmap over {names}: the gradient is not what a loop gives"
    yield from mismatches(subject, "GV504", claim, batch.grads, loop.grads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Outputs and gradients of all entries of a batch, concatenated."""

    outputs: Coordinates
    grads: Coordinates


def _loop(subject: Subject, batched: tuple[int, ...]) -> _Result:
    tapes = [graph_at(subject, _points(subject, batched, scale)) for scale in _SCALES]
    answers = [gradients_of(subject, tape, subject.cotangents) for tape in tapes]
    grads = [torch.stack(column) for column in zip(*answers, strict=True)]
    return _Result(
        outputs=tuple(torch.cat(column) for column in zip(*map(outputs_of, tapes), strict=True)),
        grads=tuple(grad.reshape(-1) if n in batched else grad.sum(0) for n, grad in enumerate(grads)),
    )


def _raised_by_rule(error: EvaluationError) -> bool:
    """True if a Function's own rule raised by mistake.

    False if the code around it raised, or if it raised NotImplementedError to declare its limits.
    """
    if isinstance(error.original, NotImplementedError):
        return False
    frames = traceback.walk_tb(error.original.__traceback__)
    return error.stage == "backward" or any(frame.f_code.co_filename == rules.__file__ for frame, _ in frames)


def _batch(subject: Subject, batched: tuple[int, ...], dim: int, loop: _Result) -> _Result:
    single = _points(subject, batched, 1.0)
    leaves = [
        torch.stack([point * scale for scale in _SCALES], dim=dim).requires_grad_()
        if n in batched
        else fresh(point).requires_grad_()
        for n, point in enumerate(single)
    ]
    dims = tuple(dim if number in batched else None for number in range(len(leaves)))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(output.tensor for output in judged_outputs(subject, call(subject.problem, tensors)))

    with torch.enable_grad():
        outputs = _vmapped(function, dims, leaves)
    named = tuple(Named(name=o.name, tensor=t) for o, t in zip(subject.tape.outputs, outputs, strict=True))
    tape = Tape(leaves=tuple(leaves), outputs=named, passing=subject.tape.passing)
    cotangents = [torch.stack([cotangent] * len(_SCALES)) for cotangent in subject.cotangents]
    found = outputs_of(tape)
    if any(output.shape != cotangent.shape for output, cotangent in zip(outputs, cotangents, strict=True)):
        return _Result(outputs=tuple(values.new_empty(0) for values in found), grads=loop.grads)
    grads = [
        grad.movedim(dim, 0) if number in batched and grad is not None else grad
        for number, grad in enumerate(vjp(subject.problem, tape, cotangents))
    ]
    return _Result(
        outputs=found,
        grads=tuple(as_coordinates(grad, leaf) for grad, leaf in zip(grads, leaves, strict=True)),
    )


def _vmapped(function: object, dims: tuple[int | None, ...], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    try:
        return tuple(torch.vmap(function, in_dims=dims)(*leaves))  # type: ignore[arg-type]
    except EvaluationError:
        raise
    except Exception as error:
        raise EvaluationError("forward", error) from error


def _points(subject: Subject, batched: tuple[int, ...], scale: float) -> list[Tensor]:
    return [
        fresh(primal.tensor) * scale if number in batched else primal.tensor
        for number, primal in enumerate(subject.primals)
    ]
