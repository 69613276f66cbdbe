"""GV503: for Functions that define `jvp`, forward mode and backward give the same Jacobian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad as dual

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks import gradcheck
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.contract.directional_difference import directional
from gradverify.checks.contract.forward_run import differs, snapshot
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.checks.contract.subject import Subject, judged_outputs, outputs_of, random_like
from gradverify.checks.contract.wording import allowance, failure, raised
from gradverify.checks.failures import evaluations, skipped
from gradverify.checks.wording import distinguishable
from gradverify.core.model.coordinates import as_plain, flatten
from gradverify.core.model.problem import Problem, call
from gradverify.core.model.tape import Tape, record
from gradverify.errors import EvaluationError
from gradverify.evidence import undiagnosed
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "forward_ad"
_STEADY = 1e-6  # relative to the sum of terms: with a larger error bound, differences decide nothing
_NO_TANGENT = "new_grad_base.is_floating_point()"  # torch's message if jvp returns None for a differentiable output
_CLOSE = 1e-5  # relative to the sum of terms: error of extrapolated differences


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare forward mode with backward, and both with differences. Raises EvaluationError."""
    if problem.primals and not defines_jvp(record(problem)):
        return skipped(NAME, problem, "no Function here defines jvp")
    subject = subject_for(problem, settings)
    if isinstance(subject, str):
        return skipped(NAME, problem, subject)
    subject = with_measured_noise(subject)
    refusals: list[str] = []
    found = tuple(findings(subject, refusals))
    if not found and refusals:
        return skipped(NAME, subject.problem, f"forward mode ends on the way: {refusals[0]}")
    found = found or tuple(_against_differences(subject))
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else "jvp, backward and differences agree",
        evaluations=evaluations(subject.problem),
        findings=found,
    )


def defines_jvp(tape: Tape) -> bool:
    """True if some Function in the graph has a jvp of its own."""
    inherited = torch.autograd.Function.jvp
    return any(class_of(node).jvp is not inherited for node in custom_nodes(tape))


def findings(subject: Subject, refusals: list[str] | None = None) -> Iterator[Finding]:
    """Yield GV503 findings where <g, jvp(t)> = <B(g), t> does not hold, for tangents of each input alone, then of all.

    If part of the graph has no forward mode, or declares this with NotImplementedError, it is added to `refusals`.
    """
    every = tuple(range(len(subject.primals)))
    found = [finding for number in every for finding in _along(subject, (number,), refusals)]
    yield from found
    if len(every) > 1 and not found:
        yield from _along(subject, every, None)


def _along(subject: Subject, inputs: tuple[int, ...], refusals: list[str] | None) -> Iterator[Finding]:
    """Yield the findings for tangents of these inputs."""
    tangents, cotangent = _tangents(subject, inputs), flatten(subject.cotangents)
    names = " and ".join(subject.primals[number].name for number in inputs)
    wrt = names if len(inputs) == 1 else None
    try:
        pushed, written = _jvp(subject, tangents)
    except EvaluationError as error:
        if not isinstance(error.original, NotImplementedError):
            yield failure("GV503", f"jvp by {names}{_why(error)}", wrt=wrt)
        elif refusals is not None:
            refusals.append(raised(error))
        return
    if written:
        yield failure("GV503", f"jvp by {names} modifies {written} in place", wrt=wrt)
    if not all(bool(gradient.isfinite().all()) for gradient in subject.gradients):
        return  # an infinite slope times a tangent of zero is no number, and no sum can be compared
    undefined = int((pushed.isnan() & torch.cat(outputs_of(subject.tape)).isfinite()).sum())
    if undefined:
        text = f"jvp by {names} is not a number in {undefined} of {pushed.numel()} entries, where backward has numbers"
        yield failure("GV503", text, wrt=wrt)
        return
    forwards = float((cotangent * pushed).nan_to_num().sum())
    sizes = torch.tensor([float((cotangent * pushed).nan_to_num().abs().sum())])
    backwards, spread = 0.0, 0.0
    for number in inputs:
        tangent = tangents[number]
        assert tangent is not None
        gradient, direction = subject.gradients[number], flatten([tangent])
        backwards += float((gradient * direction).nan_to_num().sum())
        spread += allowance(subject, number, 1.0, gradient) * float(direction.abs().sum())
        spread += allowance(subject, number, 1.0, sizes)
    if abs(forwards - backwards) > spread:
        one, other = distinguishable(forwards, backwards)
        text = f"jvp and backward disagree by {names}: <g, jvp(t)> = {one}, <B(g), t> = {other}"
        yield failure("GV503", f"{text}{_third_opinion(subject, tangents, forwards, backwards)}", wrt=wrt)


def _against_differences(subject: Subject) -> Iterator[Finding]:
    """Yield a GV503 finding if jvp is as wrong as backward, which is compared with differences entry by entry."""
    alone = replace(subject.settings, torch_gradcheck=TorchGradcheck.NEVER)
    result = gradcheck.run(subject.problem, alone, undiagnosed)
    if result.verdict is Verdict.FAIL:
        yield failure("GV503", f"jvp agrees with backward, and differences with neither: {result.message}")


def _why(error: EvaluationError) -> str:
    if _NO_TANGENT in str(error.original):
        return " returns None for an output: zeros where there is no tangent"
    return f": {raised(error)}"


def _third_opinion(subject: Subject, tangents: Sequence[Tensor | None], forwards: float, backwards: float) -> str:
    """Return which of <g, jvp(t)> and <B(g), t> differences confirm, or "" if they are too inaccurate."""
    try:
        value, bound = directional(subject, tangents)
    except EvaluationError:
        return ""
    weighted = flatten(subject.cotangents) * value
    size = float(weighted.abs().nan_to_num(0.0, 0.0, 0.0).sum())
    if bound > _STEADY * size:
        return ""
    found = float(weighted.nan_to_num().sum())
    allowed = 10 * bound * float(flatten(subject.cotangents).abs().sum()) + _CLOSE * max(size, abs(forwards))
    agree = [name for name, product in (("jvp", forwards), ("backward", backwards)) if abs(found - product) <= allowed]
    if len(agree) == 2:
        return "; differences cannot tell them apart"
    return f"; differences agree with {agree[0] if agree else 'neither'}"


def _tangents(subject: Subject, inputs: Sequence[int]) -> tuple[Tensor | None, ...]:
    generator = torch.Generator().manual_seed(subject.settings.seed + 7)
    values = random_like([primal.tensor for primal in subject.primals], generator)
    return tuple(value if number in inputs else None for number, value in enumerate(values))


def _jvp(subject: Subject, tangents: Sequence[Tensor | None]) -> tuple[Tensor, str]:
    """Return J·tangents in forward mode as coordinates of all outputs, and the name of what was overwritten, or "".

    Raises EvaluationError.
    """
    points = [_dense(primal.tensor) for primal in subject.primals]
    moving = [None if tangent is None else tangent.clone() for tangent in tangents]
    with dual.dual_level(), torch.enable_grad():
        pairs = zip(points, moving, strict=True)
        given = [point.clone() if tangent is None else _dual(point, tangent) for point, tangent in pairs]
        outputs = [output.tensor for output in judged_outputs(subject, call(subject.problem, given))]
        pushed = flatten([as_plain(_tangent_of(output)).detach() for output in outputs]).clone()
    for primal, point, tangent, before in zip(subject.primals, points, moving, tangents, strict=True):
        if tangent is None or before is None:
            continue
        overwritten = differs(point, snapshot(primal.tensor))
        if overwritten and not _works_in_place(subject):
            return pushed, primal.name
        if not overwritten and differs(tangent, snapshot(before)):
            return pushed, "its tangent"
    return pushed, ""


def _works_in_place(subject: Subject) -> bool:
    """True if the forward itself overwrites its inputs; then jvp may overwrite tangents."""
    points = [_dense(primal.tensor) for primal in subject.primals]
    with torch.no_grad():
        call(subject.problem, points)
    return any(differs(point, snapshot(primal.tensor)) for point, primal in zip(points, subject.primals, strict=True))


def _dual(tensor: Tensor, tangent: Tensor) -> Tensor:
    made: Tensor = dual.make_dual(tensor, tangent)  # type: ignore[no-untyped-call]
    return made


def _tangent_of(output: Tensor) -> Tensor:
    primal, tangent = dual.unpack_dual(output)  # type: ignore[no-untyped-call]
    return torch.zeros_like(primal) if tangent is None else tangent


def _dense(tensor: Tensor) -> Tensor:
    """Return a copy in which no two entries share memory, as dual tensors require."""
    return tensor.clone(memory_format=torch.contiguous_format)
