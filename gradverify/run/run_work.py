"""One piece of work to its answer, in the process that has torch."""

from __future__ import annotations

import torch

from gradverify.case import Absence, Case, Target, TargetProblem
from gradverify.core.model.deadline import Deadline
from gradverify.run.arguments import seed_everything
from gradverify.run.describe_exception import describe
from gradverify.run.devices import devices_here
from gradverify.run.load import LoadError, load
from gradverify.run.outcome import could_not_run
from gradverify.run.run_case import execute
from gradverify.run.run_checks import Tell, told_to_nobody
from gradverify.run.signature import signature_of
from gradverify.run.source import source_of
from gradverify.run.state import State, undisturbed
from gradverify.run.task import Answer, Devices, Loaded, Work


def perform(work: Work, state: State, deadline: Deadline | None = None, tell: Tell = told_to_nobody) -> Answer:
    """Return the answer, with the process put back to `state`; raises nothing but KeyboardInterrupt.

    The checks of a case end at the deadline; `tell` is called with their results as they come.
    """
    with undisturbed(state):
        torch.set_num_threads(1)  # sums come out the same with and without workers
        seed_everything("import")  # and so does what a module draws when it is imported, whichever case is the first
        if isinstance(work, Case):
            return execute(work, deadline, tell)
        if isinstance(work, Target):
            return inspect_target(work)
        return Devices(names=devices_here())


def inspect_target(target: Target) -> Loaded | TargetProblem:
    """Load a target and return what its forward takes, or why there is none."""
    try:
        found = load(target)
        return Loaded(signature=signature_of(found), source=source_of(found))
    except LoadError as error:
        return error.problem


def interrupted_by_itself(work: Work, error: BaseException) -> Answer:
    """Return the answer of work whose own code raised KeyboardInterrupt."""
    if isinstance(work, Case):
        return could_not_run(work, "GV902", describe(error))
    if isinstance(work, Target):
        return TargetProblem(absence=Absence.RAISED, message=f"importing it raised {describe(error)}")
    return Devices(names=("cpu",))
