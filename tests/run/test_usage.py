"""Memory and time of a function beside its reference or plain torch. No test depends on how long anything takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.core.model.problem import Problem, bind
from gradverify.deadline import deadline_in
from gradverify.run.call import Call
from gradverify.run.reference import with_reference
from gradverify.run.usage.measure import measure, with_times
from gradverify.usage import ComparedWith, Measured, Usage

COUNT = 100
ONE = 8 * COUNT  # bytes of a vector in float64


class Swish(torch.autograd.Function):
    """Keeps its input, where plain torch keeps the sigmoid too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        value = torch.sigmoid(x)
        return grad * (value + x * value * (1 - value))


class Attributes(Swish):
    """Keeps two more tensors as attributes of ctx, and views of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value = torch.sigmoid(x)
        ctx.cache = {"value": value, "part": value[1:], "input": x.detach(), "copy": [value.clone()]}
        return Swish.forward(ctx, x)


class Separate(Swish):
    """Has its context set up by a function of its own, which keeps the output too."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, _ = ctx.saved_tensors
        value = torch.sigmoid(x)
        return grad * (value + x * value * (1 - value))


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0]


class ByNumpy(Swish):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() / (1 + (-x.detach()).exp().numpy()))


class Raises(Swish):
    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ValueError("not today")


def problem(function: Callable[..., Any]) -> Problem:
    return bind(function, (torch.linspace(-1, 1, COUNT, dtype=torch.float64, requires_grad=True),), names=("x",))


def of(function: type[torch.autograd.Function]) -> Measured:
    return measure(problem(function.apply))


def saved(measured: Measured) -> tuple[int, int]:
    assert measured.function is not None
    assert measured.other is not None
    return measured.function.saved_bytes, measured.other.saved_bytes


def test_function_that_recomputes_keeps_half_of_plain_torch() -> None:
    found = of(Swish)
    assert saved(found) == (ONE, 2 * ONE)
    assert found.compared_with is ComparedWith.PLAIN_TORCH
    assert found.missing == ""


def test_attributes_of_ctx_are_counted_and_each_storage_once() -> None:
    assert saved(of(Attributes)) == (3 * ONE, 2 * ONE)


def test_inputs_and_outputs_count_with_setup_context_too() -> None:
    assert saved(of(Separate)) == (2 * ONE, 2 * ONE)


def test_in_place_function() -> None:
    assert saved(of(InPlace)) == (ONE, ONE)


def test_plain_function_is_like_itself() -> None:
    found = measure(problem(torch.sigmoid))
    assert found.function == found.other == Usage(saved_bytes=ONE, peak_bytes=3 * ONE)


def test_freed_intermediates_count_for_the_peak_alone() -> None:
    def wide(x: Tensor) -> Tensor:
        with torch.no_grad():
            del_me = torch.zeros(50 * COUNT, dtype=x.dtype)
            del del_me
        return torch.sigmoid(x)

    assert measure(problem(wide)).function == Usage(saved_bytes=ONE, peak_bytes=50 * ONE)


def test_reference_is_differentiated_by_the_inputs_of_the_function_alone() -> None:
    fixed = torch.ones(COUNT, dtype=torch.float64)
    x = torch.linspace(-1, 1, COUNT, dtype=torch.float64, requires_grad=True)
    given = Call(names=("x", "weight"), args=(x, fixed))
    function = bind(lambda x, weight: Swish.apply(x) * weight, given.args, names=given.names)
    found = measure(with_reference(function, torch.mul, given, name="mul"))
    assert saved(found) == (2 * ONE, ONE)
    assert found.compared_with is ComparedWith.REFERENCE


def test_forward_that_hides_operations_has_no_plain_torch_beside_it() -> None:
    found = of(ByNumpy)
    assert found.function is not None
    assert found.function.saved_bytes == ONE
    assert found.other is None
    assert found.missing == "plain torch: its forward hides operations from torch; name a `reference`"


def test_function_that_cannot_run_as_plain_code_has_no_plain_torch_beside_it() -> None:
    apply = vars(torch._C._FunctionBase)["apply"].__get__(None, Swish)  # below the `apply` that is replaced
    found = measure(problem(lambda x: apply(x)))
    assert found.function is not None
    assert found.other is None
    assert found.missing == "plain torch: some `apply` cannot be run as plain code; name a `reference`"


def test_exceptions_are_reasons() -> None:
    found = of(Raises)
    assert found.function is None
    assert found.missing.startswith("ValueError: not today (")
    assert with_times(found, problem(Raises.apply)) == found


def test_nothing_is_measured_late() -> None:
    wanted = problem(Swish.apply)
    late = replace(deadline_in(60.0), at=deadline_in(29.0).at)
    assert measure(replace(wanted, deadline=late)).missing == "the checks took more than half of the time limit"
    assert measure(replace(wanted, deadline=deadline_in(60.0))).missing == ""


def test_inputs_and_meter_are_untouched() -> None:
    wanted = problem(InPlace.apply)
    before = wanted.primals[0].tensor.clone()
    measure(wanted)
    assert torch.equal(wanted.primals[0].tensor, before)
    assert wanted.meter.forward == wanted.meter.backward == 0


def test_times_of_both() -> None:
    wanted = problem(Swish.apply)
    found = with_times(measure(wanted), wanted)
    for usage in (found.function, found.other):
        assert usage is not None
        assert usage.forward_seconds is not None
        assert usage.backward_seconds is not None
    assert saved(found) == (ONE, 2 * ONE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_memory_on_a_gpu() -> None:
    x = torch.linspace(-1, 1, 4096, device="cuda", requires_grad=True)
    found = measure(bind(Swish.apply, (x,), names=("x",)))
    assert saved(found) == (4 * 4096, 2 * 4 * 4096)
    assert found.function is not None
    assert found.function.peak_bytes >= found.function.saved_bytes
