"""A spec for every function of some packages: found, its inputs inferred in workers, and written. No torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradverify.author.finding.model import Finding, Found
from gradverify.author.inferring.model import Inferred, Question, with_advice
from gradverify.author.writing import draw_key, spec_of, spec_path
from gradverify.case import TargetProblem
from gradverify.result import without_output
from gradverify.run.interrupts import Waiting
from gradverify.run.no_answer import lost_message
from gradverify.run.task import INTERPRETED, Engine, Environment, FunctionCall, FunctionResult, Task, TaskDone, TaskLost

_INFER = "gradverify.author.inferring.infer:infer"
_SECONDS = 40.0  # for one function, beside importing its module: the first try, then trying
_WITHOUT_GPU = re.compile(r"active drivers|triton|cuda|nvidia", re.IGNORECASE)  # in reasons of Triton kernels
OnFunction = Callable[[int, int], None]  # with the number of functions that are done, and of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A function, and the file that its spec is written to."""

    found: Found
    path: Path
    exists: bool  # the file is there already: it stays as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Authored:
    """A function, the file of its spec, and what is in it."""

    found: Found
    path: Path
    text: str  # of the spec; "" if the file was there already
    reason: str = ""  # why it is a draft; "" if it is none
    inputs: Mapping[str, Any]  # as the spec has them


def planned(finding: Finding, folder: Path) -> tuple[Planned, ...]:
    """Return the file of each function's spec."""
    taken: set[str] = set()
    plan: list[Planned] = []
    for found in finding.functions:
        path = spec_path(found, folder, taken)
        taken.add(str(path).lower())
        plan.append(Planned(found=found, path=path, exists=path.exists()))
    return tuple(plan)


def author(
    plan: Sequence[Planned],
    finding: Finding,
    engine: Engine,
    waiting: Waiting = nullcontext,
    on_function: OnFunction = lambda _, __: None,
) -> Iterator[Authored]:
    """Yield the spec of every planned function in the order of the plan, those that exist too.

    After an interrupt, functions are left out whose inputs were not inferred by then.
    """
    asked = [each for each in plan if not each.exists and not each.found.unread]
    inferred = _infer_all(asked, finding, engine, waiting, on_function)
    for each in plan:
        if each.exists:
            yield Authored(found=each.found, path=each.path, text="", inputs={})
            continue
        found = _unread(each.found) if each.found.unread else inferred.get(str(each.path))
        if found is None:
            continue
        text, reason = spec_of(each.found, found, each.path)
        yield Authored(found=each.found, path=each.path, text=text, reason=reason, inputs=found.inputs)


def _unread(found: Found) -> Inferred:
    """Return the draft of a function whose module was not imported."""
    return Inferred(inputs=_as_written(found), reason=with_advice(without_output(found.unread)))


def _as_written(found: Found) -> dict[str, Any]:
    """Return a tensor without dimensions for each parameter that the text of the module tells."""
    if found.parameters is None:
        return {}
    spread: dict[str, Any] = {found.parameters.spread: [{"shape": []}]} if found.parameters.spread else {}
    return {name: {"shape": []} for name in found.parameters.names} | spread


def _infer_all(
    plan: Sequence[Planned], finding: Finding, engine: Engine, waiting: Waiting, on_function: OnFunction
) -> Mapping[str, Inferred]:
    """Return the inputs of each function by the path of its spec. Triton kernels are tried in its interpreter too.

    After an interrupt, functions are missing that were not tried to the end.
    """
    seconds = dict(finding.seconds)
    found = {str(each.path): each.found for each in plan}
    done: dict[str, Inferred] = {}
    undone = {str(each.path) for each in plan}

    def ask(some: Iterable[Planned], environment: Environment, dtype: str) -> None:
        limits: dict[str, float] = {}
        for each in some:
            question = Question(target=each.found.target, draw_key=draw_key(each.found, each.path), dtype=dtype)
            limits[str(each.path)] = _SECONDS + 2 * seconds.get(each.found.module.path, 0.0)
            call = FunctionCall(function=_INFER, argument=question)
            key = str(each.path)
            engine.submit(Task(key=key, work=call, timeout=limits[key], environment=environment))
        while (event := engine.next_event(waiting)) is not None:
            if isinstance(event, TaskLost):
                done[event.key] = _lost(event, limits[event.key], found[event.key])
            elif isinstance(event, TaskDone):
                done[event.key] = _better(done.get(event.key), _answer(event), environment)
            if isinstance(event, TaskLost | TaskDone) and (environment or not _lacks_gpu(done[event.key])):
                undone.discard(event.key)
            on_function(len(done), len(plan))

    on_function(0, len(plan))
    try:
        ask(plan, (), "float64")
        ask((each for each in plan if _lacks_gpu(done[str(each.path)])), INTERPRETED, "float32")
    except KeyboardInterrupt:
        engine.cancel()
    return {key: inferred for key, inferred in done.items() if key not in undone}


def _lacks_gpu(inferred: Inferred) -> bool:
    """True for the draft of a kernel that may run in Triton's interpreter."""
    return bool(_WITHOUT_GPU.search(inferred.reason))


def _answer(event: TaskDone) -> Inferred:
    if isinstance(event.answer, FunctionResult) and isinstance(event.answer.value, Inferred):
        return event.answer.value
    why = event.answer.message if isinstance(event.answer, TargetProblem) else "there was no answer"
    return Inferred(inputs={}, reason=f"could not infer the inputs: {why}")


def _better(before: Inferred | None, now: Inferred, environment: Environment) -> Inferred:
    if before is not None and now.reason:
        return before
    return replace(now, interpreted=environment == INTERPRETED)


def _lost(event: TaskLost, limit: float, found: Found) -> Inferred:
    message = without_output(lost_message(event, round(limit)))
    return Inferred(inputs=_as_written(found), reason=f"could not infer the inputs: a try {message}")
