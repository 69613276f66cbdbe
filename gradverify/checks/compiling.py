"""GV505: a function traced by torch.compile gives the same outputs and gradients as in eager mode.

It is traced for autograd and run by the same kernels (`aot_eager`), which needs no compiler for another language. So
differences come from tracing: a branch on whether the code is compiled, state that is read once, a Function with
another backward when traced.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from gradverify.case import Settings
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.contract.noise import same_output
from gradverify.checks.contract.subject import Coordinates, Subject, gradients_of, graph_at, outputs_of
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.checks.failures import evaluations, skipped
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "compile"
_BACKEND = "aot_eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """Results of the traced function, and the number of its graphs."""

    names: tuple[str, ...]  # of the outputs
    outputs: Coordinates
    grads: Coordinates | None  # None if the outputs have other names or shapes
    graphs: int


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare outputs and gradients of the compiled function with those in eager mode. Raises EvaluationError."""
    subject = subject_for(problem, settings)
    if isinstance(subject, str):
        return skipped(NAME, problem, subject)
    if subject.problem.seed is not None:
        return skipped(
            NAME, problem, "the forward draws random numbers, which traced code draws in an order of its own"
        )
    subject = with_measured_noise(subject)
    try:
        compiled = _compiled(subject)
    except EvaluationError as error:
        return skipped(NAME, subject.problem, f"torch.compile ends on the way: {raised(error)}")
    if not compiled.graphs:
        return skipped(NAME, subject.problem, "torch.compile finds nothing in it that it can trace")
    found = tuple(_findings(subject, compiled))
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else f"compiled and eager agree{_parts(compiled.graphs)}",
        evaluations=evaluations(subject.problem),
        findings=found,
    )


def _compiled(subject: Subject) -> _Compiled:
    """Trace the function and compute its outputs and gradients; raises EvaluationError.

    The compile cache of this process is reset first: many functions share the code that passes on their arguments, and
    torch keeps only a few versions of one code object.
    """
    graphs = 0

    def backend(module: Any, examples: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return traced(module, examples)

    with _quietly():
        try:
            traced = torch._dynamo.lookup_backend(_BACKEND)
            torch._dynamo.reset()
            function = torch.compile(subject.problem.function, backend=backend, dynamic=False)
        except Exception as error:
            raise EvaluationError("forward", error) from error
        compiled_subject = replace(subject, problem=replace(subject.problem, function=function))
        tape = graph_at(compiled_subject, [primal.tensor for primal in subject.primals])
        same = [(output.name, output.tensor.shape) for output in tape.outputs] == [
            (output.name, output.tensor.shape) for output in subject.tape.outputs
        ]
        outputs = outputs_of(tape)  # before backward, which may overwrite or free them
        grads = gradients_of(compiled_subject, tape, subject.cotangents) if same else None
        return _Compiled(names=_names(tape), outputs=outputs, grads=grads, graphs=graphs)


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress torch's messages on parts that it cannot trace: the message of the check gives their number."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _findings(subject: Subject, compiled: _Compiled) -> Iterator[Finding]:
    tape = graph_at(subject, [primal.tensor for primal in subject.primals])
    if compiled.names != _names(tape):
        yield failure("GV505", "compiled, it does not return the same outputs")
        return
    for name, found, expected in zip(compiled.names, compiled.outputs, outputs_of(tape), strict=True):
        if not same_output(subject, found, expected):
            yield failure("GV505", f"compiled, {name} is not what it is otherwise", of=name)
            return
    if compiled.grads is not None:
        claim = "compiled, the gradient is not what it is otherwise"
        yield from mismatches(subject, "GV505", claim, compiled.grads, gradients_of(subject, tape, subject.cotangents))


def _names(tape: Tape) -> tuple[str, ...]:
    return tuple(output.name for output in tape.outputs)


def _parts(graphs: int) -> str:
    return "" if graphs == 1 else f", traced in {graphs} parts"
