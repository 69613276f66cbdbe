"""Do one piece of work in a process that has torch: run a case, load a target, list devices, or call a function."""

from __future__ import annotations

import os
from importlib import import_module

import torch

from gradverify.case import Absence, Case, Target, TargetProblem
from gradverify.deadline import Deadline
from gradverify.errors import NotOnThisMachine
from gradverify.paths import shown_from_here
from gradverify.run.arguments import seed_everything
from gradverify.run.describe_exception import describe
from gradverify.run.devices import available_devices
from gradverify.run.load import LoadError, load
from gradverify.run.outcome import could_not_run, skipped
from gradverify.run.run_case import OnProgress, ignore_progress, run_case
from gradverify.run.signature import signature_of
from gradverify.run.source import source_of
from gradverify.run.state import State, state_restored
from gradverify.run.task import INTERPRETED, Answer, Devices, Environment, FunctionCall, FunctionResult, Loaded, Work
from gradverify.run.triton_interpreter import set_up
from gradverify.run.unobserved import unobserved


def run_work(
    work: Work,
    state: State,
    environment: Environment = (),
    deadline: Deadline | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Answer:
    """Return the answer, and restore `state` afterwards. Raises nothing but KeyboardInterrupt.

    The variables of `environment` are set before anything is imported, and nothing else has been run without them.
    The checks of a case stop at the deadline; `on_progress` is called with their results so far.
    """
    with state_restored(state), shown_from_here(), unobserved():
        os.environ.update(environment)
        lacking = _why_not_prepared(environment)
        torch.set_num_threads(1)  # sums round the same with and without workers
        seed_everything("import")  # so that a module draws the same numbers when the first case imports it
        if isinstance(work, Case):
            return run_case(work, deadline, on_progress) if lacking is None else skipped(work, lacking)
        if isinstance(work, Target):
            return inspect_target(work) if lacking is None else _unavailable(lacking)
        if isinstance(work, FunctionCall):
            return _result_of(work)
        return Devices(names=available_devices())


def inspect_target(target: Target) -> Loaded | TargetProblem:
    """Load a target; return the signature of its forward, or the problem."""
    try:
        found = load(target)
        return Loaded(signature=signature_of(found), source=source_of(found))
    except LoadError as error:
        return error.problem


def interrupted_by_itself(work: Work, error: BaseException) -> Answer:
    """Return the answer for work whose user code raised KeyboardInterrupt."""
    if isinstance(work, Case):
        return could_not_run(work, "GV902", describe(error))
    if isinstance(work, Target):
        return TargetProblem(absence=Absence.RAISED, message=f"importing it raised {describe(error)}")
    if isinstance(work, FunctionCall):
        return TargetProblem(absence=Absence.RAISED, message=describe(error))
    return Devices(names=("cpu",))


def _result_of(call: FunctionCall) -> FunctionResult | TargetProblem:
    """Return the result of a call; a problem if user code ended it by an exception that no function catches."""
    module, _, name = call.function.partition(":")
    try:
        return FunctionResult(value=getattr(import_module(module), name)(call.argument))
    except KeyboardInterrupt:
        raise
    except (SystemExit, GeneratorExit) as error:
        return TargetProblem(absence=Absence.RAISED, message=describe(error))


def _why_not_prepared(environment: Environment) -> str | None:
    """Prepare Triton's interpreter if it is switched on; return what this machine lacks for it, None if nothing."""
    if environment != INTERPRETED:
        return None
    try:
        set_up()
    except NotOnThisMachine as error:
        return str(error)
    return None


def _unavailable(reason: str) -> TargetProblem:
    return TargetProblem(absence=Absence.UNAVAILABLE, message=reason)
