"""GV503: where a Function defines `jvp`, forward mode and backward are two accounts of one Jacobian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad as dual

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks import gradcheck
from gradverify.checks.contract.build import subject_for
from gradverify.checks.contract.differences import directional
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.checks.contract.subject import Subject, judged, random_like
from gradverify.checks.contract.wording import accusation, allowance, raised
from gradverify.checks.failures import evaluations, skipped
from gradverify.core.coordinates import flatten
from gradverify.core.evidence import undiagnosed
from gradverify.core.problem import Problem, call
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "forward_ad"
_STEADY = 1e-6  # an error bound above this part of the largest entry says that nothing can be said
_CLOSE = 1e-5  # relative to the largest entry: what extrapolated differences can tell apart


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare forward mode with backward, and both with differences. Raises EvaluationError."""
    subject = subject_for(problem, settings)
    if subject is None:
        return skipped(NAME, problem, "nothing to differentiate, or a forward that does not repeat")
    if not defines_jvp(subject):
        return skipped(NAME, subject.problem, "no Function here defines jvp")
    found = tuple(findings(subject)) or tuple(_against_differences(subject))
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else "jvp, backward and differences agree",
        evaluations=evaluations(subject.problem),
        findings=found,
    )


def defines_jvp(subject: Subject) -> bool:
    """Tell whether some Function in the graph has a jvp of its own."""
    inherited = torch.autograd.Function.jvp
    return any(class_of(node).jvp is not inherited for node in custom_nodes(subject.tape))


def findings(subject: Subject) -> Iterator[Finding]:
    """GV503: <g, jvp(t)> = <B(g), t>, for tangents of each input alone."""
    cotangent = flatten(subject.cotangents)
    for number, primal in enumerate(subject.primals):
        tangents = _tangents(subject, [number])
        try:
            pushed = _jvp(subject, tangents)
        except EvaluationError as error:
            yield accusation("GV503", f"jvp by {primal.name}: {raised(error)}", wrt=primal.name)
            continue
        direction = flatten([tangent for tangent in tangents if tangent is not None])
        forwards = float((cotangent * pushed).nan_to_num().sum())
        backwards = float((subject.answer[number] * direction).nan_to_num().sum())
        spread = allowance(subject, number, 1.0, subject.answer[number]) * float(direction.abs().sum())
        sizes = float((cotangent * pushed).nan_to_num().abs().sum())
        if abs(forwards - backwards) > spread + allowance(subject, number, 1.0, torch.tensor([sizes])):
            text = (
                f"jvp and backward disagree by {primal.name}: <g, jvp(t)> = {forwards:.6g}, <B(g), t> = {backwards:.6g}"
            )
            yield accusation("GV503", f"{text}{_third_opinion(subject, tangents, pushed)}", wrt=primal.name)


def _against_differences(subject: Subject) -> Iterator[Finding]:
    """GV503 where jvp is as wrong as backward: what agrees with backward is judged with it, entry by entry."""
    alone = replace(subject.settings, torch_gradcheck=TorchGradcheck.NEVER)
    result = gradcheck.run(subject.problem, alone, undiagnosed)
    if result.verdict is Verdict.FAIL:
        yield accusation("GV503", f"jvp agrees with backward, and differences with neither: {result.message}")


def _third_opinion(subject: Subject, tangents: Sequence[Tensor | None], pushed: Tensor) -> str:
    try:
        agrees = _agrees(subject, tangents, pushed)
    except EvaluationError:
        return ""
    if agrees is None:
        return ""
    return "; differences agree with jvp" if agrees else "; differences do not agree with jvp"


def _agrees(subject: Subject, tangents: Sequence[Tensor | None], pushed: Tensor) -> bool | None:
    """Tell whether differences confirm a jvp, None where they cannot say."""
    value, bound = directional(subject, tangents)
    size = float(torch.maximum(value.abs(), pushed.abs()).nan_to_num(0.0, 0.0, 0.0).max()) if len(value) else 0.0
    if bound > _STEADY * size:
        return None
    return bool(((value - pushed).abs().nan_to_num() <= 10 * bound + _CLOSE * size).all())


def _tangents(subject: Subject, moving: Sequence[int]) -> tuple[Tensor | None, ...]:
    generator = torch.Generator().manual_seed(subject.settings.seed + 7)
    values = random_like([primal.tensor for primal in subject.primals], generator)
    return tuple(value if number in moving else None for number, value in enumerate(values))


def _jvp(subject: Subject, tangents: Sequence[Tensor | None]) -> Tensor:
    """Return J·tangents in forward mode as coordinates of all outputs; raises EvaluationError."""
    with dual.dual_level(), torch.enable_grad():
        points = [
            primal.tensor.clone() if tangent is None else _dual(_dense(primal.tensor), tangent)
            for primal, tangent in zip(subject.primals, tangents, strict=True)
        ]
        outputs = [output.tensor for output in judged(subject, call(subject.problem, points))]
        return flatten([_tangent_of(output).detach() for output in outputs]).clone()


def _dual(tensor: Tensor, tangent: Tensor) -> Tensor:
    # a copy: the jvp of a forward that works in place overwrites its tangent
    made: Tensor = dual.make_dual(tensor, tangent.clone())  # type: ignore[no-untyped-call]
    return made


def _tangent_of(output: Tensor) -> Tensor:
    primal, tangent = dual.unpack_dual(output)  # type: ignore[no-untyped-call]
    return torch.zeros_like(primal) if tangent is None else tangent


def _dense(tensor: Tensor) -> Tensor:
    """Return a copy in which no two entries share memory, as a dual tensor needs it."""
    return tensor.clone(memory_format=torch.contiguous_format)
