"""Run one case. Exceptions of user code become results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gradverify.case import Absence, Case, Exploring, ListInput, Literal, TensorInput, Trying, Values
from gradverify.core.model.problem import Problem
from gradverify.deadline import Deadline
from gradverify.errors import InputError, what_is_lacking
from gradverify.problem import ran_out_of_time
from gradverify.result import CaseResult, CheckResult, Exploration, Source, Verdict, worst
from gradverify.run.arguments import seed_everything
from gradverify.run.build import build
from gradverify.run.describe_exception import defect_text, describe, is_of_user_code
from gradverify.run.devices import tf32_switched, why_unavailable
from gradverify.run.exercised import not_exercised
from gradverify.run.load import LoadError, find, load
from gradverify.run.memory import is_out_of_memory
from gradverify.run.outcome import case_result, could_not_run, skipped, with_ended_search
from gradverify.run.run_checks import run_checks, settings_of
from gradverify.run.second_opinion import with_second_opinion
from gradverify.run.siblings import importable
from gradverify.run.source import source_in_graph, source_of
from gradverify.run.surrogate import Surrogate, surrogate_of
from gradverify.run.task import Progress
from gradverify.run.usage.measure import measure, with_times
from gradverify.spec.flow import flow
from gradverify.spec.wording import found, shortened

OnProgress = Callable[[Progress], None]


def ignore_progress(_progress: Progress) -> None:
    """Do nothing with the results so far."""


def run_case(case: Case, deadline: Deadline | None = None, on_progress: OnProgress = ignore_progress) -> CaseResult:
    """Return the result of one case. Raises nothing but KeyboardInterrupt."""
    started = time.perf_counter()
    if case.exploring is not None:
        _import_exploring()  # now: later, the user's folder is first on the path
    reason = why_unavailable(case.device)
    if reason is not None:
        return skipped(case, reason)
    try:
        with importable(case.target):
            return _run(case, started, deadline, on_progress)
    except KeyboardInterrupt:
        raise
    except LoadError as error:
        if error.problem.absence is Absence.UNAVAILABLE:
            return skipped(case, error.problem.message)
        return could_not_run(case, error.problem.code, describe_load(error), seconds=time.perf_counter() - started)
    except BaseException as error:
        return _raised(case, error, None, started)


def describe_load(error: LoadError) -> str:
    """Return the message of a LoadError, with the names that exist instead."""
    names = f"; there are {', '.join(error.problem.names)}" if error.problem.names else ""
    return f"{error.problem.message}{names}"


def _run(case: Case, started: float, deadline: Deadline | None, on_progress: OnProgress) -> CaseResult:
    target = find(case.target)
    source = source_of(target)
    try:
        # User code that draws random numbers gets the same ones whatever ran before in this process.
        seed_everything(case.draw_key, case.seed)
        reference = None if case.reference is None else load(case.reference)
        problem = replace(build(case, target, reference), deadline=deadline)
        if not problem.primals:
            return could_not_run(
                case, "GV907", _nothing_to_differentiate(case), source=source, seconds=time.perf_counter() - started
            )
        surrogate = surrogate_of(case, problem)
        seed_everything(case.draw_key, case.seed)
        with tf32_switched(on=case.tf32):
            checks = _checks(case, problem, surrogate, on_progress)
            measured = measure(problem)
            measured = with_times(measured, problem) if case.timed else measured
            checks = with_second_opinion(problem, checks) if surrogate is None else checks
            uncovered = not_exercised(problem, target, case.seed)
    except (KeyboardInterrupt, LoadError):
        raise
    except BaseException as error:
        return _raised(case, error, source, started)
    source = source or source_in_graph(problem)
    with tf32_switched(on=case.tf32):
        try:
            explored = _explored(case, target, reference, checks, on_progress)
        except _EndedByUserCode as ended:
            result = _raised(case, ended.error, source, started)
            if result.verdict is Verdict.ERROR:
                result = with_ended_search(result, case, checks, ended.found)
            return replace(result, note=problem.note)
    seconds = time.perf_counter() - started + (case.exploring.seconds if case.exploring else 0.0)
    result = case_result(
        case, checks, source=source, seconds=seconds, measured=measured, explored=explored, uncovered=uncovered
    )
    return replace(result, note=problem.note)


def _checks(
    case: Case, problem: Problem, surrogate: Surrogate | None, on_progress: OnProgress
) -> tuple[CheckResult, ...]:
    if case.exploring is not None and case.exploring.checks:
        return case.exploring.checks
    return run_checks(
        problem, case.checks, settings_of(case), lambda finished: on_progress(Progress(checks=finished)), surrogate
    )


class _EndedByUserCode(Exception):
    """What user code raised between two tries, as an input's factory may, and what the search had found by then."""

    def __init__(self, error: Exception, found: Exploration) -> None:
        super().__init__(error, found)
        self.error, self.found = error, found


def _explored(
    case: Case, target: Any, reference: Any, checks: tuple[CheckResult, ...], on_progress: OnProgress
) -> Exploration | None:
    """Return what other inputs than the ones written show, None if they are not asked for.

    Raises _EndedByUserCode.
    """
    if case.exploring is None:
        return None
    request = case.exploring if case.exploring.budget else replace(case.exploring, budget=case.explore.budget)
    # A second derivative that is wrong is left out of the search.
    verdict = worst(result.verdict for result in checks if result.check != "gradgradcheck")
    if verdict in (Verdict.FAIL, Verdict.ERROR) or any(map(ran_out_of_time, checks)):
        why = f"the inputs as written {'fail' if verdict is Verdict.FAIL else 'could not be judged'}"
        return Exploration(tries=0, budget=request.budget, message=why)

    begun: list[Trying] = []

    def on_try(trying: Trying) -> None:
        begun[:] = [trying]
        on_progress(Progress(checks=checks, trying=trying))

    try:
        return _import_exploring()(case, target, reference, request, on_try)
    except Exception as error:  # during a try, what user code raises is a discovery, or makes the try illegal
        if is_out_of_memory(error) or isinstance(error, LoadError):
            raise
        trying = begun[-1] if begun else request.after
        if isinstance(error, InputError) or is_of_user_code(error):
            raise _EndedByUserCode(error, _found_by(trying, request)) from error
        return _broken_off(error, request, trying)


def _found_by(trying: Trying | None, request: Exploring) -> Exploration:
    return Exploration(tries=0, budget=request.budget) if trying is None else trying.so_far


def _broken_off(error: Exception, request: Exploring, trying: Trying | None) -> Exploration:
    """Return what a search had found that a defect of gradverify ended."""
    when = " before the first try" if trying is None else f" at the try `{trying.phrase}`"
    return replace(_found_by(trying, request), message=defect_text(error, when), broken=True)


def _import_exploring() -> Callable[..., Exploration]:
    """Return `explored`. Few runs need it, and it would make the server of workers start 0.1 s later."""
    from gradverify.run.exploring import explored

    return explored


_NOTHING = "nothing to differentiate: no input is a floating or complex tensor that requires grad"


def _nothing_to_differentiate(case: Case) -> str:
    """Return the message for a case without differentiable inputs, with a hint if one may be meant to be."""
    for name, given in case.inputs.items():
        if isinstance(given, Literal) and _is_like_a_shape(given.value):
            return f"{_NOTHING}; `{name}` is the list {given.value}, a tensor of that shape is {{shape: {given.value}}}"
        if isinstance(given, TensorInput) and isinstance(given.origin, Values) and given.requires_grad is not False:
            return f"{_NOTHING}; the values of `{name}` are whole numbers, write 1.0 for 1 to differentiate by it"
    if not any(isinstance(given, TensorInput | ListInput) for given in case.inputs.values()):
        for name, given in case.inputs.items():
            if isinstance(given, Literal) and _is_of_numbers(given.value):
                return f"{_NOTHING}; `{name}` is {_as_tensor(name, given.value)}"
    return _NOTHING


def _is_like_a_shape(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(type(size) is int and size >= 0 for size in value)


def _raised(case: Case, error: BaseException, source: Source | None, started: float) -> CaseResult:
    lacking = what_is_lacking(error)
    if lacking is not None:
        return skipped(case, lacking)
    code = "GV906" if is_out_of_memory(error) else "GV902"
    message = str(error) if isinstance(error, InputError) else describe(error)
    return could_not_run(case, code, message, source=source, seconds=time.perf_counter() - started)


def _is_of_numbers(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_of_numbers, value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _as_tensor(name: str, value: Any) -> str:
    """Return what a number, or list of numbers, is, and how to write a tensor instead."""
    many = isinstance(value, list | tuple)
    text = "a list of numbers, a tensor of them" if many else f"{found(value)}, a tensor of that value"
    text += f" is {shortened(flow({'values': _as_floats(value)}))}"
    if isinstance(value, int) and value > 0:
        text += f", one of that size {{shape: [{value}]}}, or {name}:{value} on the command line"
    return text


def _as_floats(value: Any) -> Any:
    return [_as_floats(each) for each in value] if isinstance(value, list | tuple) else float(value)
