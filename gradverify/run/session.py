"""Cases to a report: targets first, then every case, in any order; the report is in the order of the specs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

import gradverify
from gradverify.case import Case
from gradverify.errors import SpecError
from gradverify.result import CaseResult, Environment, Report, Verdict, summarize
from gradverify.run.inprocess import InProcess
from gradverify.run.lost import lost_case
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
    results: dict[str, CaseResult] = field(default_factory=dict)  # by the case's id
    interrupted: bool = False


def run_cases(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    on_event: Listener,
    engine: Engine | None = None,
) -> Outcome:
    """Run the cases and return what came of them; an interrupt keeps what had finished.

    Where loading the targets shows mistakes in a spec, nothing runs, or with `keep_going` the other files. An engine
    that is given is the caller's to close. Raises ServerError where workers cannot be had.
    """
    started = time.perf_counter()
    seeded = [case if options.seed is None else replace(case, seed=options.seed) for case in cases]
    progress = _Progress()
    used = engine or open_engine(options.workers)
    try:
        with _termination_interrupts():
            _run_all(seeded, specs, options, on_event, used, progress)
    except KeyboardInterrupt:
        progress.interrupted = True
    finally:
        used.cancel()
        if engine is None:
            used.close()
    report = _report(seeded, progress, options, time.perf_counter() - started)
    return Outcome(report=report, errors=progress.errors, interrupted=progress.interrupted)


def open_engine(workers: int | None) -> Engine:
    """Return the engine for `workers`: None for one worker per core, 0 for this process."""
    if workers == 0:
        return InProcess()
    return LocalPool(_cores() if workers is None else workers)


def _run_all(
    cases: Sequence[Case],
    specs: Sequence[Spec],
    options: RunOptions,
    on_event: Listener,
    engine: Engine,
    progress: _Progress,
) -> None:
    scouted = scout(cases, engine)
    progress.devices = scouted.devices
    progress.errors = check_signatures(specs, cases, signatures(scouted))
    if progress.errors and not options.keep_going:
        return
    mistaken = {error.where.file for error in progress.errors}
    for result in _results([case for case in cases if case.spec not in mistaken], scouted, on_event, engine):
        judged = _required(result, options.require_devices)
        progress.results[judged.id] = judged
        on_event(Finished(result=judged))
        if options.fail_fast and not judged.as_expected:
            return


def _results(cases: Sequence[Case], scouted: Scouted, on_event: Listener, engine: Engine) -> Iterator[CaseResult]:
    """Yield the result of each case as it is finished."""
    runnable: dict[str, Case] = {}
    for case in cases:
        known = unloadable(scouted, case)
        if known is not None:
            yield known
        else:
            runnable[case.id] = case
    for case in runnable.values():
        engine.submit(Task(key=case.id, work=case, timeout=case.timeout, resource=_resource(case.device)))
    while (event := engine.next_event()) is not None:
        if isinstance(event, TaskStarted):
            on_event(Started(case_id=event.key))
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


def _report(cases: Sequence[Case], progress: _Progress, options: RunOptions, seconds: float) -> Report:
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
    )


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that what had finished is kept and no worker is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
