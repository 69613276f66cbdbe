"""What is seen of code while it runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.exploration.exercised import conditions
from gradverify.exploration.exercised.lines import recorded_lines
from gradverify.exploration.exercised.user_code import files_of
from gradverify.exploration.exercised.watch import watch
from gradverify.exploration.exercised.watched import Condition, Watched, merge
from tests.exploration import watched_functions as ops

traced = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None, reason="a coverage tool has the trace function"
)


def seen(function: Callable[..., Any], *args: Any) -> Watched:
    return watch(lambda: function(*args), [function])[1]


def only(watched: Watched, operation: str) -> Condition:
    (found,) = (each for each in watched.conditions if each.operation == operation)
    return found


def sides(condition: Condition) -> tuple[bool, bool]:
    return condition.was_true, condition.was_false


def clipped(*values: float) -> Watched:
    x = torch.tensor(values, requires_grad=True)
    function = ops.Clipped
    function.apply(x, None).sum().backward()  # the first call imports modules of torch, in more calls than are traced
    return watch(lambda: function.apply(x, None).sum().backward(), [function.forward, function.backward])[1]


def line_of(text: str) -> int:
    lines = Path(ops.__file__).read_text(encoding="utf-8").splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.strip() == text)
    return found


@pytest.mark.parametrize(
    ("values", "expected"), [((1.0, 2.0), (False, True)), ((7.0,), (True, False)), ((1.0, 7.0), (True, True))]
)
def test_comparison_is_recorded_with_its_sides(values: tuple[float, ...], expected: tuple[bool, bool]) -> None:
    condition = only(clipped(*values), "gt")
    assert sides(condition) == expected
    assert (condition.file, condition.line) == (ops.__file__, line_of("mask = x > 6"))
    assert (condition.within, condition.text, condition.constants) == ("forward", "x > 6", (6.0,))


def test_mask_of_a_recorded_comparison_is_not_recorded_again() -> None:
    assert {condition.operation for condition in clipped(1.0, 7.0).conditions} == {"gt"}


def test_mask_that_was_passed_is_recorded() -> None:
    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x, 0.0) + x.masked_fill(mask, 1.0)

    watched = seen(masked, torch.ones(2), torch.tensor([True, True]))
    assert sides(only(watched, "where")) == sides(only(watched, "masked_fill")) == (True, False)
    assert only(watched, "where").text == "torch.where(mask, x, 0.0)"


def test_each_bound_of_a_clamp_is_a_condition() -> None:
    watched = seen(ops.clamped, torch.tensor([0.0, 4.0]))
    lower, upper = only(watched, "clamp_min"), only(watched, "clamp_max")
    assert (sides(lower), sides(upper)) == ((False, True), (True, True))
    assert (lower.constants, upper.constants) == ((-1.0,), (3.0,))
    assert lower.text == "x.clamp(-1, 3,)"


def test_clamp_in_place_is_judged_by_the_values_before() -> None:
    watched = seen(lambda x: x.clamp_(max=1.0), torch.tensor([0.0, 4.0]))
    assert sides(only(watched, "clamp_max")) == (True, True)


def test_bound_that_is_a_tensor_without_dimensions_is_a_constant() -> None:
    condition = only(seen(ops.compared_with_tensor, torch.tensor([1.0, 2.0])), "minimum")
    assert (sides(condition), condition.constants) == ((False, True), (2.5,))


def test_condition_in_a_called_function_names_that_function() -> None:
    condition = only(seen(ops.calling, torch.tensor([1.0, 2.0])), "ge")
    assert (condition.within, condition.text) == ("halved", "x >= 2.0")


def test_operations_with_ties_have_no_sides() -> None:
    watched = seen(ops.with_ties, torch.tensor([1.0, 2.0]))
    assert {(each.operation, *sides(each)) for each in watched.conditions} == {
        ("max", False, False),
        ("sort", False, False),
    }


def test_operations_inside_torch_count_for_the_line_that_called_it() -> None:
    watched = seen(ops.composite, torch.tensor([1.0, 2.0]))
    assert {each.text for each in watched.conditions} == {"functional.relu6(x)", "torch.isclose(x, x.flip(0))"}
    assert {each.line for each in watched.conditions} == {
        line_of("return functional.relu6(x) + torch.isclose(x, x.flip(0))")
    }


def test_comparison_with_zero_of_a_tensor_that_cannot_be_negative() -> None:
    assert only(seen(ops.not_negative, torch.tensor([1.0])), "gt").at_points
    assert not only(clipped(1.0), "gt").at_points


def test_operators_are_named_without_overload() -> None:
    assert {"aten.gt", "aten.where"} <= clipped(1.0).operators
    assert "aten.linalg_inv_ex" in seen(torch.linalg.inv, torch.eye(2)).operators


@traced
def test_lines_that_ran_are_recorded_in_forward_and_backward() -> None:
    ran = {line for file, line in clipped(1.0).ran if file == ops.__file__}
    assert {line_of("mask = x > 6"), line_of("return y"), line_of("(mask,) = ctx.saved_tensors")} <= ran
    assert line_of("y = y + bias") not in ran


@traced
def test_lines_are_recorded_every_time() -> None:
    assert clipped(1.0).ran == clipped(1.0).ran != frozenset()


def test_tracer_that_was_there_stays() -> None:
    def tracer(_frame: Any, _event: str, _argument: Any) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        watched = clipped(1.0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert only(watched, "gt").was_false
    assert sys.version_info >= (3, 12) or not watched.ran


@traced
def test_lines_of_another_thread_are_recorded_once_it_is_followed() -> None:
    def body() -> int:
        here = sys._getframe()
        recorder.follow(here)
        return 1 + 1

    with recorded_lines(files_of([body.__code__])) as recorder:
        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
    first = body.__code__.co_firstlineno
    lines = {line for _, line in recorder.lines}
    assert {first + 1, first + 3} <= lines


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 needs no trace function")
def test_lines_are_given_up_in_code_of_very_many_calls() -> None:
    def many() -> int:
        return sum((lambda: 1)() for _ in range(50_000))

    before = sys.gettrace()
    _, watched = watch(many, [many])
    assert not watched.ran
    assert sys.gettrace() is before


def test_watching_ends_when_the_code_raises() -> None:
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        watch(lambda: 1 / 0, [ops.clamped])
    assert sys.gettrace() is before


def test_results_and_gradients_are_those_without_watching() -> None:
    x = torch.tensor([1.0, 7.0], requires_grad=True)
    gradient, _ = watch(lambda: torch.autograd.grad(ops.Clipped.apply(x, None).sum(), x), [ops.Clipped.forward])
    assert gradient[0].tolist() == [1.0, 0.0]


def test_random_numbers_are_those_without_watching() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(watch(lambda: torch.rand(3), [])[0], expected)


class Own(Tensor):
    """A subclass that torch handles by itself."""


class Doubling(TorchDispatchMode):
    """A mode of the user's."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_condition_on_a_subclass_is_recorded() -> None:
    assert sides(only(seen(ops.halved, torch.ones(2).as_subclass(Own)), "ge")) == (False, True)


def test_tensors_on_meta_are_not_read() -> None:
    assert not any(map(any, map(sides, seen(ops.halved, torch.ones(2, device="meta")).conditions)))


def test_fake_tensors_are_not_read() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def fake() -> Tensor:
        with FakeTensorMode() as mode:
            return ops.halved(mode.from_tensor(torch.ones(2)))

    assert not any(map(any, map(sides, seen(fake).conditions)))


def test_complex_numbers_can_be_compared() -> None:
    condition = only(seen(lambda x: x == 1, torch.tensor([1j, 1 + 0j])), "eq")
    assert sides(condition) == (True, True)
    assert condition.at_points


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_tensors_are_not_read() -> None:
    x = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    assert not any(map(any, map(sides, seen(lambda x: x.clamp(0, 1), x).conditions)))


def test_condition_under_vmap_and_grad_is_recorded() -> None:
    watched = watch(lambda: torch.vmap(torch.func.grad(lambda x: ops.halved(x).sum()))(torch.ones(2, 3)), [ops.halved])
    assert sides(only(watched[1], "ge")) == (False, True)


def test_condition_under_a_mode_of_the_user_is_recorded() -> None:
    def under_mode(x: Tensor) -> Tensor:
        with Doubling():
            return ops.halved(x)

    assert sides(only(watch(lambda: under_mode(torch.ones(2)), [ops.halved])[1], "ge")) == (False, True)


def test_condition_outside_the_folder_is_not_recorded() -> None:
    assert not watch(lambda: torch.ones(2) > 1, [torch.nn.functional.relu6])[1].conditions


def test_merged_conditions_have_the_sides_of_both() -> None:
    both = merge(clipped(1.0), clipped(7.0))
    assert sides(only(both, "gt")) == (True, True)
    assert both == merge(clipped(7.0), clipped(1.0))


def test_compiled_function_runs_as_plain_code() -> None:
    compiled = torch.compile(ops.halved, backend="eager")
    x = torch.ones(2)
    compiled(x)
    _, watched = watch(lambda: compiled(x), [ops.halved])
    assert (only(watched, "ge").text, sides(only(watched, "ge"))) == ("x >= 2.0", (False, True))


def test_failure_of_the_recorder_does_not_reach_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(conditions.ConditionRecorder, "_record", fail)
    assert watch(lambda: ops.halved(torch.ones(2)), [ops.halved])[0].tolist() == [1.0, 1.0]
