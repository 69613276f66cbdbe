"""GV504: where a Function says how it is batched, a batch gives what a loop over its entries gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract.build import subject_for
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.checks.contract.subject import Answer, Subject, answer_of, as_coordinates, graph_at, judged, outputs_of
from gradverify.checks.contract.wording import accusation, differences, raised
from gradverify.checks.failures import evaluations, skipped
from gradverify.core.problem import Named, Problem, call, fresh
from gradverify.core.tape import Tape, vjp
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "batching"
_SCALES = (1.0, 1 + 2.0**-7, 1 - 2.0**-6)  # the entries of a batch, as multiples of the point


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare torch.vmap with a loop, outputs and gradients. Raises EvaluationError."""
    subject = subject_for(problem, settings)
    if subject is None:
        return skipped(NAME, problem, "nothing to differentiate, or a forward that does not repeat")
    if not defines_vmap(subject):
        return skipped(NAME, subject.problem, "not every Function here defines vmap or generate_vmap_rule")
    found = tuple(findings(subject))
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else "vmap and a loop agree",
        evaluations=evaluations(subject.problem),
        findings=found,
    )


def defines_vmap(subject: Subject) -> bool:
    """Tell whether every Function in the graph says how it is batched."""
    nodes = custom_nodes(subject.tape)
    return bool(nodes) and all(_is_batched(class_of(node)) for node in nodes)


def findings(subject: Subject) -> Iterator[Finding]:
    """GV504: all inputs batched, and each alone."""
    if subject.problem.seed is not None:
        return  # every entry of a batch would draw its own numbers
    count = len(subject.primals)
    chosen = [tuple(range(count))] + ([(number,) for number in range(count)] if count > 1 else [])
    for batched in chosen:
        found = list(_compared(subject, batched))
        yield from found
        if found:
            return


def _is_batched(owner: type[torch.autograd.Function]) -> bool:
    return owner.generate_vmap_rule or owner.vmap is not torch.autograd.Function.vmap


def _compared(subject: Subject, batched: tuple[int, ...]) -> Iterator[Finding]:
    names = ", ".join(subject.primals[number].name for number in batched)
    try:
        loop = _loop(subject, batched)
    except EvaluationError:
        return
    try:
        batch = _batch(subject, batched)
    except EvaluationError as error:
        yield accusation("GV504", f"vmap over {names}: {raised(error)}")
        return
    for output, one, other in zip(subject.tape.outputs, batch.outputs, loop.outputs, strict=True):
        if one.shape != other.shape or not torch.allclose(one, other, rtol=1e-6, atol=0.0, equal_nan=True):
            yield accusation("GV504", f"vmap over {names}: {output.name} is not what a loop gives", of=output.name)
            return
    claim = f"vmap over {names}: the gradient is not what a loop gives"
    yield from differences(subject, "GV504", claim, batch.grads, loop.grads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """Outputs and gradients of all entries of a batch, concatenated."""

    outputs: Answer
    grads: Answer


def _loop(subject: Subject, batched: tuple[int, ...]) -> _Result:
    tapes = [graph_at(subject, _points(subject, batched, scale)) for scale in _SCALES]
    answers = [answer_of(subject, tape, subject.cotangents) for tape in tapes]
    grads = [torch.stack(column) for column in zip(*answers, strict=True)]
    return _Result(
        outputs=tuple(torch.cat(column) for column in zip(*map(outputs_of, tapes), strict=True)),
        grads=tuple(grad.reshape(-1) if n in batched else grad.sum(0) for n, grad in enumerate(grads)),
    )


def _batch(subject: Subject, batched: tuple[int, ...]) -> _Result:
    single = _points(subject, batched, 1.0)
    leaves = [
        torch.stack([point * scale for scale in _SCALES]).requires_grad_()
        if n in batched
        else fresh(point).requires_grad_()
        for n, point in enumerate(single)
    ]
    dims = tuple(0 if number in batched else None for number in range(len(leaves)))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(output.tensor for output in judged(subject, call(subject.problem, tensors)))

    with torch.enable_grad():
        outputs = _vmapped(function, dims, leaves)
    named = tuple(Named(name=o.name, tensor=t) for o, t in zip(subject.tape.outputs, outputs, strict=True))
    tape = Tape(leaves=tuple(leaves), outputs=named, passing=subject.tape.passing)
    cotangents = [torch.stack([cotangent] * len(_SCALES)) for cotangent in subject.cotangents]
    grads = vjp(subject.problem, tape, cotangents)
    return _Result(
        outputs=outputs_of(tape),
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
