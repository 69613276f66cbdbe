"""Run cases and build the report. All targets are loaded first; the report is in the order of the specs."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import gradverify
from gradverify.case import Case, Trying
from gradverify.errors import SpecError
from gradverify.result import CaseResult, Environment, NotRun, Report, Stop, Verdict, summarize
from gradverify.run.engines.open import open_engine
from gradverify.run.interrupts import Interrupts, Waiting, held_interrupts
from gradverify.run.no_answer import after_lost_try, interrupted_case, lost_case
from gradverify.run.options import EngineOptions, Event, Finished, Noted, Outcome, RunOptions, Started, TryingInputs
from gradverify.run.targets import (
    LoadedTargets,
    environment_of,
    load_targets,
    signatures,
    source_of_target,
    unloadable_result,
)
from gradverify.run.task import Engine, EngineNote, Task, TaskDone, TaskLost, TaskStarted, TaskTrying
from gradverify.spec.model import Spec
from gradverify.spec.signature import check_signatures

_MOST_LOST_TRIES = 20  # of one case: its exploration ends then
Listener = Callable[[Event], None]


@dataclass(slots=True, kw_only=True)
class _Progress:
    """The results of a run so far. The fields change during the run."""

    targets: LoadedTargets = field(default_factory=lambda: LoadedTargets(devices=("cpu",), targets={}))
    errors: tuple[SpecError, ...] = ()
    valid: tuple[Case, ...] = ()  # the cases of specs without mistakes: these are run
    results: dict[str, CaseResult] = field(default_factory=dict)  # by the case's id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """The engine of a run, with the listener and limits that hold for all cases."""

    engine: Engine
    waiting: Waiting  # context in which an interrupt may end the run
    memory: int | None  # bytes that a case may take
    on_event: Listener


def run_cases(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    on_event: Listener,
    engine: Engine | None = None,
    interrupts: Interrupts | None = None,
) -> Outcome:
    """Run the cases and return the outcome. An interrupt ends the run; finished cases are kept.

    If loading the targets shows mistakes in specs, nothing is run, or only the other files with `keep_going`. The
    caller closes an engine and releases interrupts that it passes. Raises ServerError if workers cannot be started.
    """
    started = time.perf_counter()
    seeded = [case if options.seed is None else replace(case, seed=options.seed) for case in cases]
    seeded = [replace(case, exploring=options.exploring) for case in seeded]
    progress = _Progress()
    machine = _environment(options)  # now, while the server loads torch: `platform` starts a process
    interrupted = False
    with held_interrupts() if interrupts is None else nullcontext(interrupts) as held:
        used = engine or open_engine(EngineOptions(workers=options.workers))
        context = _Context(engine=used, waiting=held.waiting, memory=options.memory, on_event=on_event)
        try:
            _run_all(seeded, specs, options, context, progress)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            unfinished = used.cancel()
            if engine is None:
                used.close()
        if interrupted:
            _keep_failures(unfinished, options, context, progress)
        stop = Stop.INTERRUPT if interrupted else Stop.FAIL_FAST
        machine = replace(machine, devices=progress.targets.devices)
        report = _report(seeded, progress, machine, stop, time.perf_counter() - started)
        report = replace(report, engine=used.name)
        return Outcome(report=report, errors=progress.errors, interrupted=interrupted or bool(held))


def _run_all(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    context: _Context,
    progress: _Progress,
) -> None:
    targets = load_targets(cases, context.engine, context.waiting)
    progress.targets = targets
    progress.errors = check_signatures(specs, cases, signatures(targets))
    if progress.errors and not options.keep_going:
        return
    mistaken = {error.where.file for error in progress.errors}
    progress.valid = tuple(case for case in cases if case.spec not in mistaken)
    for result in _results(_slowest_first(progress.valid, options.earlier), targets, context):
        reviewed = options.judge(_with_requirements(result, options))
        progress.results[reviewed.id] = reviewed
        context.on_event(Finished(result=reviewed))
        if options.fail_fast and not reviewed.as_expected:
            return


def _keep_failures(unfinished: Sequence[TaskLost], options: RunOptions, context: _Context, progress: _Progress) -> None:
    """Add the results of the cases in which changed inputs had shown a failure; note how far the others had come."""
    cases = {case.id: case for case in progress.valid}
    for lost in unfinished:
        result = interrupted_case(cases[lost.key], lost)
        if result is None and lost.trying is not None:
            tries = lost.trying.so_far.tries
            tried = f"{tries:,} {'try' if tries == 1 else 'tries'} without a failure"
            context.on_event(Noted(text=f"{lost.key}: {tried} before the interrupt"))
        elif result is not None:
            result = replace(result, source=source_of_target(progress.targets, cases[lost.key]))
            progress.results[lost.key] = options.judge(result)
            context.on_event(Finished(result=progress.results[lost.key]))


def _slowest_first(cases: Sequence[Case], earlier: Mapping[str, float]) -> Sequence[Case]:
    """Return the cases in the order in which they start, so that no worker is left alone with a long case at the end.

    Cases of which no time is known start first. Those of one environment stay together: they share workers.
    """
    if not earlier:
        return cases
    return sorted(cases, key=lambda case: (environment_of(case), -earlier.get(case.id, math.inf)))


def _results(cases: Sequence[Case], targets: LoadedTargets, context: _Context) -> Iterator[CaseResult]:
    """Yield the result of each case when it is finished."""
    runnable: dict[str, Case] = {}
    for case in cases:
        known = unloadable_result(targets, case)
        if known is not None:
            yield known
        else:
            runnable[case.id] = case
    for case in runnable.values():
        context.engine.submit(_task(case, context))
    while (event := context.engine.next_event(context.waiting)) is not None:
        if isinstance(event, TaskStarted | TaskTrying | EngineNote):
            context.on_event(_told(event))
        elif isinstance(event, TaskLost) and event.trying is not None and not _has_lost_most(event.trying):
            runnable[event.key] = after_lost_try(runnable[event.key], event, event.trying)
            context.engine.submit(_task(runnable[event.key], context))
        elif isinstance(event, TaskLost):
            case = runnable[event.key]
            yield replace(lost_case(case, event), source=source_of_target(targets, case))
        elif isinstance(event, TaskDone) and isinstance(event.answer, CaseResult):
            yield event.answer


def _told(event: TaskStarted | TaskTrying | EngineNote) -> Event:
    """Return an event of the engine as one of the run."""
    if isinstance(event, TaskStarted):
        return Started(case_id=event.key, where=event.where)
    if isinstance(event, EngineNote):
        return Noted(text=event.text)
    return TryingInputs(case_id=event.key, tries=event.tries, failures=event.failures)


def _task(case: Case, context: _Context) -> Task:
    return Task(
        key=case.id,
        work=case,
        timeout=case.timeout,
        memory=context.memory,
        resource=_resource(case.device),
        device=case.device,
        environment=environment_of(case),
    )


def _has_lost_most(trying: Trying) -> bool:
    return len(trying.so_far.lost) + 1 >= _MOST_LOST_TRIES


def _resource(device: str) -> str:
    """Return the resource of a device: a GPU runs one case at a time, the CPU ("") as many as there are workers."""
    if device == "cpu":
        return ""
    return device if ":" in device else f"{device}:0"


def _with_requirements(result: CaseResult, options: RunOptions) -> CaseResult:
    """Return the result, as not expected if it is a draft and there may be none, or if a required device is missing."""
    if result.draft:
        return replace(result, as_expected=not options.no_drafts)
    wanted = {result.device, result.device.partition(":")[0]} & set(options.require_devices)
    if result.verdict is Verdict.SKIP and not result.checks and wanted:
        return replace(result, as_expected=False)
    return result


def _environment(options: RunOptions) -> Environment:
    """Return what the report says of this machine, without its devices."""
    return Environment(
        python=platform.python_version(),
        torch=importlib.metadata.version("torch"),
        platform=platform.platform(),
        devices=(),
        seed=options.seed,
    )


def _report(cases: Sequence[Case], progress: _Progress, machine: Environment, stop: Stop, seconds: float) -> Report:
    finished = tuple(progress.results[case.id] for case in cases if case.id in progress.results)
    return Report(
        gradverify=gradverify.__version__,
        environment=machine,
        summary=summarize(finished, seconds),
        cases=finished,
        not_run=tuple(NotRun(id=case.id, why=stop) for case in progress.valid if case.id not in progress.results),
    )
