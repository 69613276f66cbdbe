"""One case, from its target to its result; nothing that user code raises gets out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from gradverify.case import Case, Literal
from gradverify.core.model.deadline import Deadline
from gradverify.errors import InputError
from gradverify.result import CaseResult, Source
from gradverify.run.arguments import seed_everything
from gradverify.run.build import build
from gradverify.run.describe_exception import describe
from gradverify.run.devices import lack_of
from gradverify.run.load import LoadError, find
from gradverify.run.memory import is_out_of_memory
from gradverify.run.outcome import could_not_run, judged, skipped
from gradverify.run.run_checks import Tell, run_checks, settings_of, told_to_nobody
from gradverify.run.siblings import importable
from gradverify.run.source import source_in_graph, source_of
from gradverify.run.surrogate import surrogate_of


def execute(case: Case, deadline: Deadline | None = None, tell: Tell = told_to_nobody) -> CaseResult:
    """Run one case and return what came of it; raises nothing but KeyboardInterrupt."""
    started = time.perf_counter()
    lack = lack_of(case.device)
    if lack is not None:
        return skipped(case, lack)
    try:
        with importable(case.target):
            return _run(case, started, deadline, tell)
    except KeyboardInterrupt:
        raise
    except LoadError as error:
        return could_not_run(case, error.problem.code, describe_load(error), seconds=time.perf_counter() - started)
    except BaseException as error:
        return _raised(case, error, None, started)


def describe_load(error: LoadError) -> str:
    """Return what a LoadError says, with the names that are there instead."""
    names = f"; there are {', '.join(error.problem.names)}" if error.problem.names else ""
    return f"{error.problem.message}{names}"


def _run(case: Case, started: float, deadline: Deadline | None, tell: Tell) -> CaseResult:
    target = find(case.target)
    source = source_of(target)
    try:
        # What user code draws on its own account depends on the case alone, not on what ran before.
        seed_everything(case.draw_key, case.seed)
        problem = replace(build(case, target), deadline=deadline)
        if not problem.primals:
            return could_not_run(case, "GV907", _nothing(case), source=source, seconds=time.perf_counter() - started)
        surrogate = surrogate_of(case, problem)
        seed_everything(case.draw_key, case.seed)
        checks = run_checks(problem, case.checks, settings_of(case), tell, surrogate)
    except (KeyboardInterrupt, LoadError):
        raise
    except BaseException as error:
        return _raised(case, error, source, started)
    source = source or source_in_graph(problem)
    return judged(case, checks, source=source, seconds=time.perf_counter() - started)


_NOTHING = "nothing to differentiate: no input is a floating or complex tensor that requires grad"


def _nothing(case: Case) -> str:
    """Return why nothing can be differentiated, and what may have been meant by a list of sizes."""
    for name, given in case.inputs.items():
        if isinstance(given, Literal) and _is_like_a_shape(given.value):
            return f"{_NOTHING}; `{name}` is the list {given.value}, a tensor of that shape is {{shape: {given.value}}}"
    return _NOTHING


def _is_like_a_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(type(size) is int and size >= 0 for size in value)


def _raised(case: Case, error: BaseException, source: Source | None, started: float) -> CaseResult:
    code = "GV906" if is_out_of_memory(error) else "GV902"
    said = str(error) if isinstance(error, InputError) else describe(error)
    return could_not_run(case, code, said, source=source, seconds=time.perf_counter() - started)
