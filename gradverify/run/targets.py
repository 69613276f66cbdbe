"""Load every target once, before the first case runs, so that all mistakes are reported together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from gradverify.case import Absence, Case, Signature, Target, TargetProblem
from gradverify.result import CaseResult, Source
from gradverify.run.interrupts import Waiting
from gradverify.run.no_answer import lost_target
from gradverify.run.outcome import could_not_run, drafted, skipped
from gradverify.run.task import (
    INTERPRETED,
    DeviceQuery,
    Devices,
    Engine,
    Environment,
    Loaded,
    Task,
    TaskDone,
    TaskLost,
)
from gradverify.spec.signature import targets_of

_SURVEY_TIMEOUT = 60.0  # seconds for the drivers to list the devices


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTargets:
    """The devices of this machine, and every target or the reason why it did not load."""

    devices: tuple[str, ...]
    targets: Mapping[Target, Loaded | TargetProblem]


def load_targets(cases: Sequence[Case], engine: Engine, waiting: Waiting = nullcontext) -> LoadedTargets:
    """Load every target of the cases, and list the devices."""
    limits: dict[Target, float] = {}
    environments: dict[Target, Environment] = {}  # of the first case that names it
    needed: dict[Target, str] = {}  # device of the first case that needs another than the CPU
    for case in cases:
        for target in targets_of(case):
            if needed.get(target, "cpu") == "cpu":
                needed[target] = case.device
            limits[target] = max(case.timeout, limits.get(target, 0.0))
            environments.setdefault(target, environment_of(case))
    tasks = {f"target {number}": target for number, target in enumerate(limits)}
    if cases:
        other = next((case.device for case in cases if case.device != "cpu"), "cpu")
        engine.submit(Task(key="survey", work=DeviceQuery(), timeout=_SURVEY_TIMEOUT, device=other))
    for key, target in tasks.items():
        limit, environment, device = limits[target], environments[target], needed[target]
        engine.submit(Task(key=key, work=target, timeout=limit, environment=environment, device=device))
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
    return LoadedTargets(devices=devices, targets=found)


def environment_of(case: Case) -> Environment:
    """Return the environment variables that the modules of a case need when they are imported."""
    return INTERPRETED if case.interpret else ()


def signatures(targets: LoadedTargets) -> dict[Target, Signature | TargetProblem]:
    """Return the signature or the problem of each target, as `check_signatures` takes them."""
    return {
        target: found.signature if isinstance(found, Loaded) else found for target, found in targets.targets.items()
    }


def source_of_target(targets: LoadedTargets, case: Case) -> Source | None:
    """Return the place where the backward of a case is defined, None if its target did not load."""
    found = targets.targets.get(case.target)
    return found.source if isinstance(found, Loaded) else None


def unloadable_result(targets: LoadedTargets, case: Case) -> CaseResult | None:
    """Return the result of a draft or of a case whose function or factory did not load, None if the case can be run."""
    if case.draft:
        return drafted(case)
    for target in targets_of(case):
        found = targets.targets.get(target)
        if isinstance(found, TargetProblem):
            if found.absence is Absence.UNAVAILABLE:
                return skipped(case, found.message)
            names = f"; there are {', '.join(found.names)}" if found.names else ""
            own = found.absence is Absence.RAISED or target == case.target
            message = found.message if own else f"{target.written}: {found.message}"
            return could_not_run(case, found.code, f"{message}{names}", source=source_of_target(targets, case))
    return None
