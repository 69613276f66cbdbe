"""GV106: tensors that autograd does not track, inside a container that a Function returns or is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.checks.contract.nodes import tensors_in
from gradverify.checks.failures import failing, skipped
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, graph_nodes
from gradverify.interception import intercepted_apply, is_hand_written
from gradverify.result import CheckResult, Finding, Verdict

_CODE = "GV106"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A container that is passed to a hand-written Function."""

    function: str  # name of the Function
    kind: str  # type of the container
    tensor: Tensor  # a tensor inside that requires grad


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """The containers seen at calls of `apply`; the lists grow during observation."""

    returned: list[str] = field(default_factory=list)  # message per call that returned untracked tensors only
    given: list[Box] = field(default_factory=list)


@contextmanager
def containers_seen() -> Iterator[Containers]:
    """Record the containers that hand-written Functions return and are given in this block."""
    seen = Containers()

    def handle(original: Callable[[], Any], cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        returned = original()
        if is_hand_written(cls) and torch.is_grad_enabled():
            given = [box for value in (*args, *kwargs.values()) for box in _boxes(cls, value)]
            seen.given.extend(given)
            tracked = any(isinstance(value, Tensor) and value.requires_grad for value in args)
            if (given or tracked) and (message := _untracked(cls, returned)):
                seen.returned.append(message)
        return returned

    with intercepted_apply(handle):
        yield seen


def never_called(check: str, problem: Problem, tape: Tape, seen: Containers) -> CheckResult | None:
    """Return the fail of a problem whose Function returned a container, if no output was computed on a graph.

    None for any other problem: if an output was, tensors in the container may be meant as constants.
    """
    computed = any(node is not None for node in tape.nodes)  # an input that is returned as it is has no node
    return None if computed or not seen.returned else failing(check, problem, _CODE, seen.returned[0])


def without_backward(check: str, problem: Problem, tape: Tape) -> CheckResult | None:
    """Return the skip of a problem without an output that has a graph; None if there is a backward."""
    return (
        None if _has_graph(tape) else skipped(check, problem, "no output has a graph: there is no backward to question")
    )


def with_reasons(result: CheckResult, problem: Problem, tape: Tape, seen: Containers) -> CheckResult:
    """Add why gradients are missing or wrong: autograd never saw an input or a result, or no output has a graph."""
    reasons = _reasons(problem, tape, seen)
    findings = tuple(_with_reason(finding, reasons) for finding in result.findings)
    if result.verdict is Verdict.FAIL and seen.returned:
        findings = (*findings, Finding(code=_CODE, verdict=Verdict.PASS, message=seen.returned[0]))
    return replace(result, findings=findings)


def _untracked(cls: type[Function], returned: Any) -> str:
    """Return the message about a Function that returned tensors inside containers only, "" if it did not."""
    items = returned if isinstance(returned, tuple) else (returned,)
    boxes = [item for item in items if not isinstance(item, Tensor) and any(map(_is_float, tensors_in(item)))]
    if not boxes or any(isinstance(item, Tensor) and _is_float(item) for item in items):
        return ""
    kind = type(boxes[0]).__name__
    what = f"a tuple with a {kind} in it" if isinstance(returned, tuple) else f"a {kind}"
    return (
        f"{cls.__name__}.apply returns {what}: autograd does not track the tensors in the {kind}, so backward is never"
        " called; return a tensor or a tuple of tensors"
    )


def _boxes(cls: type[Function], value: Any) -> Iterator[Box]:
    if not isinstance(value, Tensor):
        for tensor in tensors_in(value):
            if tensor.requires_grad:
                yield Box(function=cls.__name__, kind=type(value).__name__, tensor=tensor)


def _reasons(problem: Problem, tape: Tape, seen: Containers) -> dict[str, tuple[str, str]]:
    """Return, for each input that autograd cannot reach, the reason and the remedy."""
    found: dict[str, tuple[str, str]] = {}
    if not _has_graph(tape):
        why = "no output has a graph, so backward is never called"
        remedy = "outputs are detached, computed without a graph, or all marked as non-differentiable"
        found |= {primal.name: (why, remedy) for primal in problem.primals}
    for box in seen.given:
        for name in _names_behind(box.tensor, problem, tape.leaves):
            where = f"{name} is inside a {box.kind} that {box.function}.apply is given"
            found[name] = (f"{where}, and autograd does not track it there", "give it as an argument of its own")
    return found


def _names_behind(tensor: Tensor, problem: Problem, leaves: Sequence[Tensor]) -> list[str]:
    """Return the names of the inputs that a tensor is computed from, or is."""
    ends = {id(getattr(node, "variable", None)) for node in graph_nodes([tensor])} | {id(tensor)}
    return [primal.name for primal, leaf in zip(problem.primals, leaves, strict=True) if id(leaf) in ends]


def _with_reason(finding: Finding, reasons: dict[str, tuple[str, str]]) -> Finding:
    name = next((name for name in reasons if finding.wrt in (name, f"{name}.real", f"{name}.imag")), None)
    if finding.code != "GV102" or name is None:
        return finding
    why, remedy = reasons[name]
    first = finding.message.partition("\n")[0].removeprefix("backward returns ")
    return replace(finding, cause=None, message=f"{why}: {first}; {remedy}")


def _has_graph(tape: Tape) -> bool:
    return any(output.tensor.requires_grad for output in tape.outputs)


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
