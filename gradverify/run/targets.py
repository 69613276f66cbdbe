"""Every target is loaded once, before the first case runs, so that all mistakes are said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from gradverify.case import Absence, Case, Signature, Target, TargetProblem
from gradverify.result import CaseResult, Source
from gradverify.run.interrupts import Waiting
from gradverify.run.no_answer import lost_target
from gradverify.run.outcome import could_not_run
from gradverify.run.task import Devices, Engine, Loaded, Survey, Task, TaskDone, TaskLost
from gradverify.spec.signature import targets_of

_SURVEY_TIMEOUT = 60.0  # seconds that drivers have to say what devices there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Scouted:
    """What was found before the first case."""

    devices: tuple[str, ...]
    targets: Mapping[Target, Loaded | TargetProblem]


def scout(cases: Sequence[Case], engine: Engine, waiting: Waiting = nullcontext) -> Scouted:
    """Load every target of the cases, and ask what devices there are."""
    limits: dict[Target, float] = {}
    for case in cases:
        for target in targets_of(case):
            limits[target] = max(case.timeout, limits.get(target, 0.0))
    tasks = {f"target {number}": target for number, target in enumerate(limits)}
    if cases:
        engine.submit(Task(key="survey", work=Survey(), timeout=_SURVEY_TIMEOUT))
    for key, target in tasks.items():
        engine.submit(Task(key=key, work=target, timeout=limits[target]))
    devices: tuple[str, ...] = ("cpu",)
    found: dict[Target, Loaded | TargetProblem] = {}
    while (event := engine.next_event(waiting)) is not None:
        if isinstance(event, TaskDone) and isinstance(event.answer, Devices):
            devices = event.answer.names
        elif isinstance(event, TaskDone) and isinstance(event.answer, Loaded | TargetProblem):
            found[tasks[event.key]] = event.answer
        elif isinstance(event, TaskLost) and event.key in tasks:
            target = tasks[event.key]
            found[target] = lost_target(target, event, limits[target])
    return Scouted(devices=devices, targets=found)


def signatures(scouted: Scouted) -> dict[Target, Signature | TargetProblem]:
    """Return what the spec room needs to say mistakes."""
    return {
        target: found.signature if isinstance(found, Loaded) else found for target, found in scouted.targets.items()
    }


def source_in(scouted: Scouted, case: Case) -> Source | None:
    """Return where the backward of a case is defined, None where its target did not load."""
    found = scouted.targets.get(case.target)
    return found.source if isinstance(found, Loaded) else None


def unloadable(scouted: Scouted, case: Case) -> CaseResult | None:
    """Return the result of a case whose function or factory cannot be had, None where it can be run."""
    for target in targets_of(case):
        found = scouted.targets.get(target)
        if isinstance(found, TargetProblem):
            names = f"; there are {', '.join(found.names)}" if found.names else ""
            own = found.absence is Absence.RAISED or target == case.target
            message = found.message if own else f"{target.written}: {found.message}"
            return could_not_run(case, found.code, f"{message}{names}", source=source_in(scouted, case))
    return None
