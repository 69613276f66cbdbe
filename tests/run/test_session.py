"""Runs: the report is in the order of the specs, for every engine and order of completion."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradverify.case import Absence, Case, Expectation, Literal, TargetProblem, TensorInput, Values
from gradverify.errors import SpecError, Where
from gradverify.result import CaseResult, Stop, Verdict
from gradverify.run import session
from gradverify.run.inprocess import InProcess
from gradverify.run.options import Event, Finished, RunOptions, Started
from gradverify.run.session import run_cases
from gradverify.run.task import Engine
from tests.run.making import OPS, SHOWN, case, outcome, run, target
from tests.run.processes import left_over, offspring


def numbered(count: int) -> list[Case]:
    names = ("Square", "NewStyle", "Once", "WrongCube", "square")
    return [
        case(names[number % len(names)], id=f"spec/{number}/cpu", draw_key=f"spec/{number}") for number in range(count)
    ]


def timeless(results: Sequence[CaseResult]) -> list[CaseResult]:
    return [replace(result, seconds=0.0) for result in results]


@pytest.mark.slow
def test_results_depend_neither_on_workers_nor_on_order_nor_on_subset(engine: Engine) -> None:
    cases = numbered(6)
    alone = timeless(outcome(cases, InProcess()).report.cases)
    assert [result.id for result in alone] == [wanted.id for wanted in cases]
    assert timeless(outcome(cases, engine).report.cases) == alone
    assert timeless(outcome(cases[::-1], engine).report.cases) == alone[::-1]
    assert timeless(outcome(cases[2:4], engine).report.cases) == alone[2:4]


def test_a_wrong_gradient_fails_and_a_right_one_passes(engine: Engine) -> None:
    found = run([case("Square"), case("WrongCube", expect=Expectation(verdict=Verdict.FAIL))], engine)
    assert (found["Square"].verdict, found["Square"].as_expected) == (Verdict.PASS, True)
    assert (found["WrongCube"].verdict, found["WrongCube"].as_expected) == (Verdict.FAIL, True)


def test_the_source_is_where_backward_is_defined(engine: Engine) -> None:
    lines = (OPS / "good.py").read_text().splitlines()
    scaled = {"x": case("Square").inputs["x"], "shift": Literal(value=1.0)}
    names = ("Square", "Once", "apply_square", "through_square", "through_both", "square")
    cases = [case(name) for name in names] + [case("Scaled", inputs=scaled, init={"size": 3}), case("Squares")]
    found = {name: result.source for name, result in run(cases, engine).items()}
    square, once = (source_line(lines, name) for name in ("Square", "Once"))
    assert {source.file for source in found.values() if source} == {f"{SHOWN}/good.py"}
    assert {name: source.line for name, source in found.items() if source} == {
        "Square": square,
        "Once": once,
        "apply_square": square,  # F.apply under another name
        "through_square": square,  # a callable and a module whose graph has one Function
        "Squares": square,
    }


def source_line(lines: list[str], name: str) -> int:
    start = next(number for number, line in enumerate(lines) if line.startswith(f"class {name}("))
    return next(n for n, line in enumerate(lines, 1) if n > start and line.strip().startswith("def backward"))


def test_events_come_in_pairs(engine: Engine) -> None:
    events: list[Event] = []
    outcome(numbered(3), engine, events)
    started = [event.case_id for event in events if isinstance(event, Started)]
    finished = [event.result.id for event in events if isinstance(event, Finished)]
    assert sorted(started) == sorted(finished) == ["spec/0/cpu", "spec/1/cpu", "spec/2/cpu"]


def test_the_environment_and_the_summary(engine: Engine) -> None:
    report = outcome(numbered(2), engine, seed=7).report
    assert report.environment.devices[0] == "cpu"
    assert report.environment.seed == 7
    assert report.summary.cases == 2
    assert {result.seed for result in report.cases} == {7}


def test_the_seed_changes_the_values(engine: Engine) -> None:
    wrong = case("WrongCube")
    (first,), (second,) = (outcome([wrong], engine, seed=seed).report.cases for seed in (1, 2))
    assert first.checks[0].findings != second.checks[0].findings


def test_fail_fast_stops_at_the_first_that_is_not_as_expected(engine: Engine) -> None:
    cases = [case("WrongCube"), *numbered(30)]
    report = outcome(cases, engine, fail_fast=True).report
    assert 1 <= len(report.cases) < 31
    assert sum(not result.as_expected for result in report.cases) == 1
    finished = {result.id for result in report.cases}
    assert [left.id for left in report.not_run] == [wanted.id for wanted in cases if wanted.id not in finished]
    assert {left.why for left in report.not_run} == {Stop.FAIL_FAST}


def test_cases_that_were_slow_start_first_and_the_report_keeps_their_order() -> None:
    cases = numbered(4)
    ids = [wanted.id for wanted in cases]
    events: list[Event] = []
    earlier = {ids[0]: 0.1, ids[1]: 0.5, ids[3]: 0.3}
    report = outcome(cases, InProcess(), events, earlier=earlier).report
    assert [event.case_id for event in events if isinstance(event, Started)] == [ids[2], ids[1], ids[3], ids[0]]
    assert [result.id for result in report.cases] == ids


def test_fail_fast_ignores_failures_in_the_baseline(engine: Engine) -> None:
    cases = [case("WrongCube"), *numbered(3)]
    events: list[bool] = []

    def on_event(event: Event) -> None:
        events.append(isinstance(event, Started) or event.result.as_expected)

    options = RunOptions(fail_fast=True, judge=lambda result: replace(result, as_expected=True, known="issue 12"))
    report = run_cases(cases, (), options, on_event, engine=engine).report
    assert [result.known for result in report.cases] == ["issue 12"] * 4
    assert all(events)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("raises.py", f"GV901: importing {SHOWN}/raises.py raised ZeroDivisionError: division by zero"),
        ("exits.py", f"GV901: importing {SHOWN}/exits.py raised SystemExit by sys.exit(5)"),
        ("aborts.py", "GV905: importing aborts.py:square: crashed: SIGABRT (Aborted)"),
        ("hangs.py", "GV904: importing hangs.py:square: timed out after 0.5 s"),
    ],
)
def test_a_module_that_does_not_load_fails_its_own_cases(engine: Engine, file: str, said: str) -> None:
    found = run([case("square", file, timeout=0.5), case("Square")], engine)
    assert found["square"].message.startswith(said)
    assert found["Square"].verdict is Verdict.PASS


def test_nothing_to_differentiate_and_invalid_inputs_are_errors(engine: Engine) -> None:
    nothing = replace(case("integers"), inputs={"x": replace(case("square").inputs["x"], requires_grad=False)})
    listed = case("Square", inputs={"x": Literal(value=[4, 3])})
    odd = replace(case("square"), inputs={"x": replace(case("square").inputs["x"], dtype="float63")})
    whole = case("Nested.inner", inputs={"x": TensorInput(origin=Values(values=[1, 2]))})
    found = run([nothing, listed, odd, whole], engine)
    assert found["Nested.inner"].message.endswith(
        "the values of `x` are whole numbers, write 1.0 for 1 to differentiate by it"
    )
    assert found["Square"].message.endswith("`x` is the list [4, 3], a tensor of that shape is {shape: [4, 3]}")
    assert found["integers"].message.startswith("GV907: nothing to differentiate")
    assert found["square"].message == "GV902: input `x`: torch has no dtype called `float63`"


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, "is the whole number 3, a tensor of that value is {values: 3.0}, one of that size {shape: [3]}, or x:3 on"),
        (3.5, "is the number 3.5, a tensor of that value is {values: 3.5}"),
        ([1.0, 2.0], "is a list of numbers, a tensor of them is {values: [1.0, 2.0]}"),
        ([[1, 2], [3, 4]], "is a list of numbers, a tensor of them is {values: [[1.0, 2.0], [3.0, 4.0]]}"),
        (True, ""),
        (["a", 1.0], ""),
    ],
)
def test_numbers_in_place_of_a_tensor_say_how_to_write_one(engine: Engine, value: Any, hint: str) -> None:
    (result,) = run([case("Square", inputs={"x": Literal(value=value)})], engine).values()
    _, requires_grad, said = result.message.partition("requires grad")
    assert (requires_grad, said.startswith(f"; `x` {hint}") if hint else not said) == ("requires grad", True), said


def test_a_number_beside_a_tensor_gets_no_hint(engine: Engine) -> None:
    untracked = replace(case("square").inputs["x"], requires_grad=False)
    (result,) = run([case("square", inputs={"x": untracked, "factor": Literal(value=3)})], engine).values()
    assert result.message.endswith("requires grad")


def test_a_device_that_is_not_there_is_a_skip_unless_it_is_required(engine: Engine) -> None:
    absent = case("Square", device="cuda:99")
    (skip,) = outcome([absent], engine).report.cases
    assert (skip.verdict, skip.as_expected) == (Verdict.SKIP, True)
    assert "this machine has" in skip.message
    (required,) = outcome([absent], engine, require_devices=("cuda",)).report.cases
    assert not required.as_expected


def test_a_mistake_in_a_spec_stops_the_run_unless_keep_going(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = case("absent", spec="wrong.yaml")
    cases = [wrong, case("Square")]

    def check(specs: object, given: object, loaded: dict[object, object]) -> tuple[SpecError, ...]:
        problem = loaded[wrong.target]
        assert isinstance(problem, TargetProblem)
        assert problem.absence is Absence.MISSING
        return (SpecError(where=Where(file="wrong.yaml"), problem=problem.message),)

    monkeypatch.setattr(session, "check_signatures", check)
    stopped = outcome(cases, engine)
    assert [error.problem for error in stopped.errors] == [f"{SHOWN}/good.py has no `absent`"]
    assert stopped.report.cases == ()
    assert [result.id for result in outcome(cases, engine, keep_going=True).report.cases] == [cases[1].id]


@pytest.mark.slow
def test_an_interrupt_keeps_what_had_finished(engine: Engine) -> None:
    cases = [case("Square"), case("hang", "faults.py"), case("stop", "faults.py")]
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    stopped = outcome(cases, engine)
    timer.join()
    assert stopped.interrupted
    assert [result.id for result in stopped.report.cases] == [cases[0].id]
    assert [(left.id, left.why) for left in stopped.report.not_run] == [
        (wanted.id, Stop.INTERRUPT) for wanted in cases[1:]
    ]
    assert outcome(cases[:1], engine).report.cases[0].verdict is Verdict.PASS


SCRIPT = """
import sys
from gradverify.run.options import RunOptions
from gradverify.run.session import run_cases
from tests.run.making import case
assert "torch" not in sys.modules and "numpy" not in sys.modules
def say(event):
    assert "torch" not in sys.modules and "numpy" not in sys.modules
    print(type(event).__name__, flush=True)
run_cases([case("Square"), case("hang", "faults.py")], (), RunOptions(workers=2), say)
"""


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_behind() -> None:
    """The light process does not import torch, and its workers end when it is killed."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, cwd=root) as script:
        assert script.stdout is not None
        seen = [script.stdout.readline().strip() for _ in range(3)]
        assert sorted(seen) == ["Finished", "Started", "Started"]
        descendants = offspring(script.pid)
        assert len(descendants) >= 2
        script.kill()
    assert not left_over(descendants)


def test_a_target_is_a_value() -> None:
    assert hash(target("Square")) == hash(target("Square"))
