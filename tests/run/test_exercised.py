"""What a case's inputs do not exercise, from its run to its result."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

import gradverify
from gradverify.case import Case, Literal, TensorInput, Values
from gradverify.core.model.problem import Problem, bind
from gradverify.deadline import deadline_in
from gradverify.result import CaseResult, Verdict
from gradverify.run import exercised
from gradverify.run.exercised import not_exercised
from gradverify.run.run_case import run_case
from gradverify.run.task import Engine
from tests.run.making import SHOWN, case, run
from tests.run.ops import unexercised as ops

traced = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None, reason="a coverage tool has the trace function"
)
FILE = f"{SHOWN}/unexercised.py"


def unexercised(name: str, **changes: Any) -> Case:
    return case(name, "unexercised.py", **changes)


def told(result: CaseResult) -> list[tuple[str, str, str]]:
    return [(entry.within, entry.text, entry.never.value) for entry in result.uncovered]


@pytest.mark.slow
@traced
def test_case_says_what_its_inputs_did_not_exercise(engine: Engine) -> None:
    result = run([unexercised("Clipped")], engine)["Clipped"]
    assert told(result) == [("forward", "x > limit", "true"), ("forward", "y = y + bias", "run")]
    assert [(entry.file, entry.line) for entry in result.uncovered] == [(FILE, 18), (FILE, 20)]
    assert (result.verdict, result.message) == (Verdict.PASS, "")


def test_functions_in_the_graph_of_a_callable_are_watched() -> None:
    assert ("forward", "x > limit", "true") in told(run_case(unexercised("twice_clipped")))


def test_forward_of_a_module_is_watched() -> None:
    assert told(run_case(unexercised("Layer"))) == [("forward", "x > 100", "true")]


def test_inputs_that_take_both_sides_leave_nothing() -> None:
    inputs = {**unexercised("Clipped").inputs, "limit": Literal(value=0.0), "bias": Literal(value=1.0)}
    assert run_case(unexercised("Clipped", inputs=inputs, seed=1)).uncovered == ()


def test_integers_for_which_backward_returns_a_gradient_are_named() -> None:
    integers = {**unexercised("Weighted").inputs, "w": TensorInput(origin=Values(values=[1, 1, 1]), shape=(3,))}
    result = run_case(unexercised("Weighted", inputs=integers))
    assert (told(result), result.verdict) == ([("Weighted", "w", "differentiated")], Verdict.PASS)
    assert (result.uncovered[0].file, result.uncovered[0].line) == (FILE, 54)


def test_integers_that_have_no_gradient_and_numbers_that_have_one_are_not_named() -> None:
    numbers = {**unexercised("Weighted").inputs, "w": TensorInput(origin=Values(values=[1.0, 1.0, 1.0]), shape=(3,))}
    result = run_case(unexercised("Weighted", inputs=numbers))
    assert (told(result), result.verdict) == ([], Verdict.FAIL)
    places = {**unexercised("Picked").inputs, "places": TensorInput(origin=Values(values=[2, 0]), shape=(2,))}
    assert told(run_case(unexercised("Picked", inputs=places))) == []


def test_verify_names_integers_too() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert ("Weighted", "w", "differentiated") in told(gradverify.verify(ops.Weighted, (x, torch.tensor([1, 1]))))


def test_verify_has_it_too() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    result = gradverify.verify(ops.twice_clipped, (x,))
    assert ("forward", "x > limit", "true") in told(result)
    assert result.verdict is Verdict.PASS


def test_generators_are_left_as_they_were_by_verify() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    gradverify.verify(ops.twice_clipped, (x,), checks=("gradcheck",))
    assert torch.equal(torch.rand(2), expected)


def problem(function: Any) -> Problem:
    return bind(function, (torch.ones(2, dtype=torch.float64, requires_grad=True),), names=("x",))


def raising(_x: torch.Tensor) -> torch.Tensor:
    raise SystemExit(1)


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 6, 6.0, x)


def test_code_that_raises_gives_no_report() -> None:
    assert not_exercised(problem(raising), raising, 0) == ()


def test_interrupt_of_the_user_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exercised, "watch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        not_exercised(problem(plain), plain, 0)


def straight(x: torch.Tensor) -> torch.Tensor:
    return 2 * x.exp()


def test_code_without_conditions_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(exercised, "watch", watched)
    assert not_exercised(problem(straight), straight, 0) == ()


def test_nothing_is_watched_past_half_of_the_time_limit() -> None:
    on_time, late = deadline_in(20.0), replace(deadline_in(1.0), seconds=4.0)
    assert not_exercised(replace(problem(plain), deadline=on_time), plain, 0)
    assert not_exercised(replace(problem(plain), deadline=late), plain, 0) == ()


def test_calls_are_not_counted() -> None:
    given = problem(plain)
    not_exercised(given, plain, 0)
    assert (given.meter.forward, given.meter.backward) == (0, 0)


def test_the_same_is_said_every_time() -> None:
    assert not_exercised(problem(plain), plain, 0) == not_exercised(problem(plain), plain, 0) != ()
