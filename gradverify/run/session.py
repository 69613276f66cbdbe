"""Cases to a report: targets first, then every case, in any order; the report is in the order of the specs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import gradverify
from gradverify.case import Case
from gradverify.errors import SpecError
from gradverify.result import CaseResult, Environment, NotRun, Report, Stop, Verdict, summarize
from gradverify.run.inprocess import InProcess
from gradverify.run.interrupts import Interrupts, Waiting, held_interrupts
from gradverify.run.no_answer import lost_case
from gradverify.run.options import Event, Finished, Outcome, RunOptions, Started
from gradverify.run.pool import LocalPool
from gradverify.run.targets import Scouted, scout, signatures, source_in, unloadable
from gradverify.run.task import Engine, Task, TaskDone, TaskLost, TaskStarted
from gradverify.spec.model import Spec
from gradverify.spec.signature import check_signatures

Listener = Callable[[Event], None]


@dataclass(slots=True, kw_only=True)
class _Progress:
    """What a run has found so far; the one value here that changes."""

    devices: tuple[str, ...] = ("cpu",)
    errors: tuple[SpecError, ...] = ()
    sound: tuple[Case, ...] = ()  # those to run: their specs have no mistake
    results: dict[str, CaseResult] = field(default_factory=dict)  # by the case's id


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desk:
    """Where cases are handed in, and how that is to go."""

    engine: Engine
    waiting: Waiting  # where an interrupt may end the run
    memory: int | None  # bytes that a case may take
    tell: Listener


def run_cases(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    on_event: Listener,
    engine: Engine | None = None,
    interrupts: Interrupts | None = None,
) -> Outcome:
    """Run the cases and return what came of them; an interrupt ends the run and loses nothing that had finished.

    Where loading the targets shows mistakes in a spec, nothing runs, or with `keep_going` the other files. An engine
    that is given is the caller's to close; so are interrupts to release. Raises ServerError where workers cannot be
    had.
    """
    started = time.perf_counter()
    seeded = [case if options.seed is None else replace(case, seed=options.seed) for case in cases]
    progress = _Progress()
    interrupted = False
    with held_interrupts() if interrupts is None else nullcontext(interrupts) as held:
        used = engine or open_engine(options.workers)
        desk = _Desk(engine=used, waiting=held.waiting, memory=options.memory, tell=on_event)
        try:
            _run_all(seeded, specs, options, desk, progress)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            used.cancel()
            if engine is None:
                used.close()
        stop = Stop.INTERRUPT if interrupted else Stop.FAIL_FAST
        report = _report(seeded, progress, options, stop, time.perf_counter() - started)
        return Outcome(report=report, errors=progress.errors, interrupted=interrupted or bool(held))


def open_engine(workers: int | None) -> Engine:
    """Return the engine for `workers`, getting ready: None for one worker per core, 0 for this process.

    It is the caller's to close. Raises ServerError where workers cannot be had.
    """
    if workers == 0:
        return InProcess()
    pool = LocalPool(_cores() if workers is None else workers)
    pool.start()
    return pool


def _run_all(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    desk: _Desk,
    progress: _Progress,
) -> None:
    scouted = scout(cases, desk.engine, desk.waiting)
    progress.devices = scouted.devices
    progress.errors = check_signatures(specs, cases, signatures(scouted))
    if progress.errors and not options.keep_going:
        return
    mistaken = {error.where.file for error in progress.errors}
    progress.sound = tuple(case for case in cases if case.spec not in mistaken)
    for result in _results(progress.sound, scouted, desk):
        judged = options.judge(_required(result, options.require_devices))
        progress.results[judged.id] = judged
        desk.tell(Finished(result=judged))
        if options.fail_fast and not judged.as_expected:
            return


def _results(cases: Sequence[Case], scouted: Scouted, desk: _Desk) -> Iterator[CaseResult]:
    """Yield the result of each case as it is finished."""
    runnable: dict[str, Case] = {}
    for case in cases:
        known = unloadable(scouted, case)
        if known is not None:
            yield known
        else:
            runnable[case.id] = case
    for case in runnable.values():
        resource = _resource(case.device)
        desk.engine.submit(Task(key=case.id, work=case, timeout=case.timeout, memory=desk.memory, resource=resource))
    while (event := desk.engine.next_event(desk.waiting)) is not None:
        if isinstance(event, TaskStarted):
            desk.tell(Started(case_id=event.key))
        elif isinstance(event, TaskLost):
            case = runnable[event.key]
            yield replace(lost_case(case, event), source=source_in(scouted, case))
        elif isinstance(event, TaskDone) and isinstance(event.answer, CaseResult):
            yield event.answer


def _resource(device: str) -> str:
    """Return what cases of a device share: one GPU runs one case at a time."""
    if device == "cpu":
        return ""
    return device if ":" in device else f"{device}:0"


def _required(result: CaseResult, devices: Sequence[str]) -> CaseResult:
    """Say that a case is not as expected when it was skipped for want of a device that has to be there."""
    wanted = {result.device, result.device.partition(":")[0]} & set(devices)
    if result.verdict is Verdict.SKIP and not result.checks and wanted:
        return replace(result, as_expected=False)
    return result


def _report(cases: Sequence[Case], progress: _Progress, options: RunOptions, stop: Stop, seconds: float) -> Report:
    finished = tuple(progress.results[case.id] for case in cases if case.id in progress.results)
    return Report(
        gradverify=gradverify.__version__,
        environment=Environment(
            python=platform.python_version(),
            torch=importlib.metadata.version("torch"),
            platform=platform.platform(),
            devices=progress.devices,
            seed=options.seed,
        ),
        summary=summarize(finished, seconds),
        cases=finished,
        not_run=tuple(NotRun(id=case.id, why=stop) for case in progress.sound if case.id not in progress.results),
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
