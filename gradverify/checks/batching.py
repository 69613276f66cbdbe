"""GV504: for Functions that define a vmap rule, a batch gives the same as a loop over its entries."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._functorch import autograd_function as rules
from torch.utils import checkpoint

from gradverify.case import Settings
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.contract.nodes import Relay, class_of, custom_nodes
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
from gradverify.core.model.problem import Problem, call, fresh
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.errors import EvaluationError
from gradverify.nested import Named
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "batching"
Dimensions = tuple[int | None, ...]  # for every input the dimension that is batched, None for none

# The entries of a batch: the point, its numbers in reverse order, and a multiple of it.
_ENTRIES: tuple[Relay, ...] = (lambda x: x, lambda x: x.flip(tuple(range(x.dim()))), lambda x: x * (1 - 2.0**-6))
_IN_ORDER = (_ENTRIES[0], _ENTRIES[2])


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
    """Yield GV504 findings, with all inputs batched in the first dimension, each alone, and all in other dimensions.

    If vmap raises outside of the Functions' own rules, or a rule raises NotImplementedError, this is added to
    `refusals`.
    """
    if subject.problem.seed is not None:
        return  # every entry of a batch would draw its own numbers
    count, last = len(subject.primals), tuple(-1 if primal.tensor.dim() else 0 for primal in subject.primals)
    chosen: list[Dimensions] = [(0,) * count]
    if count > 1:
        chosen += [tuple(0 if other == number else None for other in range(count)) for number in range(count)]
    chosen += [last, tuple(dimension if number % 2 else 0 for number, dimension in enumerate(last))]
    for dimensions in dict.fromkeys(chosen):
        try:
            found = list(_compared(subject, dimensions))
        except EvaluationError as error:
            if refusals is not None:
                refusals.append(raised(error))
            return
        yield from found
        if found:
            return


def _is_batched(function: type[torch.autograd.Function]) -> bool:
    return function.generate_vmap_rule or function.vmap is not torch.autograd.Function.vmap


def _compared(subject: Subject, dimensions: Dimensions) -> Iterator[Finding]:
    """Compare vmap over some inputs with a loop; raises EvaluationError if vmap fails outside of their rules."""
    pairs = [(primal.name, d) for primal, d in zip(subject.primals, dimensions, strict=True) if d is not None]
    names = ", ".join(f"{name}{' in the last dimension' if d else ''}" for name, d in pairs)
    # Where only some inputs are in reverse order, numbers meet that do not belong together.
    entries = _IN_ORDER if None in dimensions else _ENTRIES
    loop = _loop(subject, dimensions, entries)
    if loop is None and entries is not _IN_ORDER:
        entries = _IN_ORDER
        loop = _loop(subject, dimensions, entries)
    if loop is None:
        return
    try:
        batch = _batch(subject, dimensions, entries, loop)
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


def _loop(subject: Subject, dimensions: Dimensions, entries: Sequence[Relay]) -> _Result | None:
    """Return what the entries give one by one, None if one raises: it may be outside of the domain."""
    try:
        tapes = [graph_at(subject, _points(subject, dimensions, entry)) for entry in entries]
        answers = [gradients_of(subject, tape, subject.cotangents) for tape in tapes]
    except EvaluationError:
        return None
    grads = [torch.stack(column) for column in zip(*answers, strict=True)]
    return _Result(
        outputs=tuple(torch.cat(column) for column in zip(*map(outputs_of, tapes), strict=True)),
        grads=tuple(grad.sum(0) if d is None else grad.reshape(-1) for d, grad in zip(dimensions, grads, strict=True)),
    )


def _raised_by_rule(error: EvaluationError) -> bool:
    """True if a Function's own rule raised by mistake.

    False if the code around it raised, as a checkpoint that runs forward again, or if it raised NotImplementedError to
    declare its limits.
    """
    if isinstance(error.original, NotImplementedError):
        return False
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.original.__traceback__)}
    return checkpoint.__file__ not in files and (error.stage == "backward" or rules.__file__ in files)


def _batch(subject: Subject, dimensions: Dimensions, entries: Sequence[Relay], loop: _Result) -> _Result:
    points = zip(*(_points(subject, dimensions, entry) for entry in entries), strict=True)
    leaves = [
        (fresh(first) if d is None else torch.stack([first, *others], dim=d)).requires_grad_()
        for (first, *others), d in zip(points, dimensions, strict=True)
    ]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(output.tensor for output in judged_outputs(subject, call(subject.problem, tensors)))

    with torch.enable_grad():
        outputs = _vmapped(function, dimensions, leaves)
    named = tuple(Named(name=o.name, tensor=t) for o, t in zip(subject.tape.outputs, outputs, strict=True))
    tape = Tape(leaves=tuple(leaves), outputs=named, copied=subject.tape.copied)
    cotangents = [torch.stack([cotangent] * len(entries)) for cotangent in subject.cotangents]
    found = outputs_of(tape)
    if any(output.shape != cotangent.shape for output, cotangent in zip(outputs, cotangents, strict=True)):
        return _Result(outputs=tuple(values.new_empty(0) for values in found), grads=loop.grads)
    grads = [
        grad if grad is None or d is None else grad.movedim(d, 0)
        for d, grad in zip(dimensions, vjp(subject.problem, tape, cotangents), strict=True)
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


def _points(subject: Subject, dimensions: Dimensions, entry: Relay) -> list[Tensor]:
    return [
        primal.tensor if d is None else entry(fresh(primal.tensor))
        for d, primal in zip(dimensions, subject.primals, strict=True)
    ]
