"""Tries keep to what is declared: budget, fixed, ranges, indices, choices, sizes, dims, require."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import gradverify
from tests.exploration.hidden_mistakes import points


class Calls:
    """What a forward was called with, differences of the inputs left out."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.forward = forward

    def __call__(self, *arguments: Any) -> Any:
        self.seen.append(tuple(each.detach().clone() if isinstance(each, Tensor) else each for each in arguments))
        return self.forward(*arguments)

    def of(self, place: int) -> list[Any]:
        return [arguments[place] for arguments in self.seen]


def recorded(calls: Calls) -> Callable[..., Any]:
    """Return a function of x, y and n that records its calls."""

    def forward(x: Tensor, y: Any, n: Any = 1) -> Any:
        return calls(x, y, n)

    return forward


def matmul(x: Tensor, y: Tensor, n: int) -> Tensor:
    return (x @ y) * n


def scaled(x: Tensor, y: float, n: int) -> Tensor:
    return x.sin() * y + n


def explored(calls: Calls, *inputs: Any, **options: Any) -> gradverify.Exploration:
    found = gradverify.explore(recorded(calls), inputs, **{"checks": ("gradcheck",), "budget": 60, **options})
    assert found.message == ""
    assert found.tries > 0
    return found


def test_budget_is_the_most_legal_tries() -> None:
    for budget in (1, 7, 30):
        found = gradverify.explore(torch.sin, (points(3),), checks=("gradcheck",), budget=budget)
        assert (found.tries, found.budget) == (budget, budget)


@pytest.mark.parametrize("budget", [0, -1, True, 2.5])
def test_budget_that_is_no_positive_number_is_refused(budget: Any) -> None:
    with pytest.raises(ValueError, match="budget: expected a number of tries above zero"):
        gradverify.explore(torch.sin, (points(3),), budget=budget)


def test_fixed_inputs_stay_as_they_are() -> None:
    calls = Calls(scaled)
    explored(calls, points(3), 2.0, 3, fixed=("y", "n"))
    assert set(calls.of(1)) == {2.0} and set(calls.of(2)) == {3}
    assert len({tuple(x.shape) for x in calls.of(0)}) > 3


def test_fixed_tensor_keeps_its_values() -> None:
    calls = Calls(scaled)
    explored(calls, points(3), 2.0, 3, fixed=("x",), budget=400)
    assert {tuple(x.shape) for x in calls.of(0)} == {(3,)}
    far = [float((x - points(3).detach()).abs().max()) for x in calls.of(0)]
    assert max(far) < 0.05  # the steps of differences, and rounding to float32
    assert len(set(calls.of(1))) > 3 and len(set(calls.of(2))) > 3


def test_ranges_limit_numbers_and_tensors() -> None:
    calls = Calls(scaled)
    explored(calls, points(3), 0.5, 3, ranges={"x": (-2.0, 2.0), "y": (0.0, 0.9), "n": (1, 4)})
    assert all(0.0 <= y <= 0.9 for y in calls.of(1))
    assert {n for n in calls.of(2) if isinstance(n, int)} == {1, 2, 3, 4}
    assert {entry for n in calls.of(2) if isinstance(n, tuple) for entry in n} <= {1, 2, 3, 4}
    assert max(float(x.abs().max()) for x in calls.of(0)) < 2.1  # steps of differences lead beyond
    assert len(set(calls.of(1))) > 2


def test_choices_are_the_only_values() -> None:
    calls = Calls(lambda x, y, n: x.sin() * {"one": 1.0, "two": 2.0, "three": 3.0}[y] * n)
    explored(calls, points(3), "one", 1, choices={"y": ("one", "two"), "n": (1, 5)})
    assert set(calls.of(1)) == {"one", "two"}
    assert set(calls.of(2)) == {1, 5}


def test_indices_stay_below_their_limit() -> None:
    calls = Calls(lambda x, y, _: x[y.clamp(min=0)] * (y >= 0))
    ids = torch.tensor([0, 2, 1])
    found = explored(calls, points(6), ids, 1, indices={"y": {"below": 4, "special": [-100]}}, fixed=("x", "n"))
    assert found.failures == ()
    values = {int(value) for y in calls.of(1) for value in y.reshape(-1)}
    assert values == {0, 1, 2, 3, -100}


@pytest.mark.slow
def test_indices_below_a_dim_follow_its_size() -> None:
    calls = Calls(lambda x, y, _: x[y])
    ids = torch.tensor([0, 2, 1])
    explored(calls, points(4), ids, 1, dims={"x": ("n",)}, indices={"y": {"below": "n"}}, budget=120)
    assert len({len(x) for x, _, _ in calls.seen if x.dim() == 1}) > 3
    for x, y, _ in calls.seen:
        assert x.dim() != 1 or not y.numel() or (int(y.min()) >= 0 and int(y.max()) < len(x))


def test_sizes_limit_a_dim() -> None:
    calls = Calls(matmul)
    explored(
        *(calls, points(2, 4), points(4, 3), 1),
        dims={"x": ("a", "b"), "y": ("b", "c")},
        sizes={"a": (1, 3), "b": {"from": 4, "to": 12, "multiple_of": 4}},
        fixed=("c", "n"),
    )
    shapes = {(tuple(x.shape), tuple(y.shape)) for x, y, _ in calls.seen if x.dim() == y.dim() == 2}
    assert {x[0] for x, _ in shapes} == {1, 2, 3}
    assert {x[1] for x, _ in shapes} == {4, 8, 12}
    assert {y[1] for _, y in shapes} == {3}
    assert all(x[1] == y[0] for x, y in shapes)


def test_equal_names_stay_equal() -> None:
    calls = Calls(lambda x, y, _: x * y[: len(x)].sum())
    explored(calls, points(3), points(3), 1, dims={"x": ("k",), "y": ("k",)})
    assert all(x.shape == y.shape for x, y, _ in calls.seen if x.dim() == y.dim() == 1)
    assert len({len(x) for x, _, _ in calls.seen if x.dim() == 1}) > 3


@pytest.mark.slow
def test_requirement_holds_at_every_try() -> None:
    calls = Calls(lambda x, y, n: x.sin().sum() * y + n)
    explored(calls, points(3), 2.0, 3, require="y > n - 2 and len(x) <= 4")
    assert all(y > n - 2 for _, y, n in calls.seen)
    assert max(len(x) for x in calls.of(0) if x.dim() == 1) <= 4  # a check stacks many points in one call
    assert len({(y, n) for _, y, n in calls.seen}) > 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"require": "n > 2"}, "`require` is not met"),
        ({"ranges": {"x": (0, 1)}}, "x leaves [0, 1]"),
        ({"dims": {"x": ("k",)}, "sizes": {"k": (4, 8)}}, "k may not be 3"),
    ],
)
def test_inputs_that_break_the_rules_are_told(options: dict[str, Any], why: str) -> None:
    found = gradverify.explore(recorded(Calls(scaled)), (points(3), 2.0), budget=5, **options)
    assert (found.tries, found.message) == (0, f"the inputs as written cannot be tried: {why}")


def test_inputs_without_gradients_are_told() -> None:
    found = gradverify.explore(torch.sin, (points(3).detach(),), budget=5)
    assert found.message == "the inputs as written cannot be tried: no input requires grad"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"x": ("n", "m")}}, "dims: `x` has 1 dimensions, found 2 names"),
        ({"dims": {"x": ("k",), "y": ("k",)}}, "dims: `k` is 3 and 2"),
        (
            {"dims": {"x": ("k",)}, "sizes": {"k": {"least": 2}}},
            "sizes: `k` has no 'least'; it may have from, to, multiple_of",
        ),
        ({"indices": {"x": {"limit": 2}}}, "indices: `x` has no 'limit'; it may have below, special"),
        ({"dims": {"x": "n"}}, "dims: `x`: expected a list of names, found 'n'"),
        ({"dims": {"n": ("k",)}}, "dims: `n` is no tensor"),
        ({"dims": {"q": ("k",)}}, "dims: there is no `q`; there are x, y, n"),
        ({"sizes": {"k": (1, 2)}}, "sizes: there is no `k`; there is none"),
        ({"dims": {"x": ("k",)}, "sizes": {"k": 3}}, "sizes: `k`: expected the least and the largest, found 3"),
        ({"ranges": {"n": (3, 1)}}, "ranges: `n`: expected the least and the largest, found (3, 1)"),
        ({"ranges": {"m": (1, 3)}}, "ranges: there is no `m`; there are x, y, n"),
        ({"choices": {"n": "ab"}}, "choices: `n`: expected a list of values, found 'ab'"),
        ({"fixed": "n"}, "fixed: expected a list of names, found 'n'"),
        ({"fixed": ["m"]}, "fixed: there is no `m`; there are x, y, n"),
        ({"require": "m > 1"}, "require: there is no `m`; there are x, y, n"),
        ({"names": ("a", "b", "c")}, "names: forward calls its inputs x, y, n; found a, b, c"),
    ],
)
def test_mistakes_in_the_arguments_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        gradverify.explore(recorded(Calls(matmul)), (points(3), points(2), 1), **options)
    assert str(raised.value) == message


def test_tensors_of_the_caller_are_not_touched() -> None:
    x, w, ids = points(4), points(4), torch.tensor([0, 2, 3])
    before = [each.detach().clone() for each in (x, w, ids)]
    state = torch.random.get_rng_state()
    gradverify.explore(lambda x, w, ids: (x * w.mul_(1.0))[ids], (x, w.detach(), ids), budget=60)
    for each, was in zip((x, w, ids), before, strict=True):
        assert torch.equal(each, was)
    assert x.grad is None and x.requires_grad and x.is_leaf
    assert torch.equal(torch.random.get_rng_state(), state)


class ForgetsFactor(torch.autograd.Function):
    """x·w·n, whose backward forgets n."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor | None = None, n: float = 1.0) -> Tensor:
        weight = torch.ones_like(x) if w is None else w
        ctx.save_for_backward(x, weight)
        return x * weight * n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w = ctx.saved_tensors
        return grad * w, grad * x, None


@pytest.mark.slow
def test_fixed_tensor_keeps_its_values_where_a_failure_is_made_small() -> None:
    w = torch.tensor([0.37, 2.19, 1.41], dtype=torch.float64, requires_grad=True)
    found = gradverify.explore(ForgetsFactor, (points(3), w, 1.0), fixed=("w",), checks=("gradcheck",), budget=60)
    assert found.failures
    assert all("w: {values: [0.37, 2.19, 1.41]" in failure.inputs for failure in found.failures)


def test_fixed_optional_tensor_is_not_left_out() -> None:
    w = torch.tensor([0.37, 2.19, 1.41], dtype=torch.float64, requires_grad=True)
    found = gradverify.explore(ForgetsFactor, (points(3), w, 1.0), fixed=("w", "n"), checks=("gradcheck",), budget=40)
    assert not any("w: none" in phrase for each in found.discoveries for phrase in each.changes)
    assert found.failures == ()


def test_fixed_list_keeps_the_shapes_of_its_tensors() -> None:
    seen: list[torch.Size] = []

    def forward(xs: list[Tensor], y: Tensor) -> Tensor:
        seen.extend(each.shape for each in xs)
        return sum(each.sum() for each in xs) * y

    gradverify.explore(forward, ([points(2, 3), points(4)], points(5)), fixed=("xs",), checks=("gradcheck",), budget=80)
    assert set(seen) == {torch.Size([2, 3]), torch.Size([4])}


def test_rule_is_kept_while_a_failure_is_made_small() -> None:
    calls = Calls(lambda x, y, n: x.sin() @ y * n)

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor, n: int) -> Tensor:
            ctx.save_for_backward(x, y)
            ctx.n = n
            result: Tensor = calls(x, y, n)
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
            x, y = ctx.saved_tensors
            return 2 * ctx.n * torch.outer(grad, y) * x.cos() / min(ctx.n, 2), ctx.n * x.sin().mT @ grad, None

    inputs = (points(4, 3), points(3), 2)
    found = gradverify.explore(Doubled, inputs, checks=("gradcheck",), budget=60, require="x.shape[1] == len(y)")
    assert found.failures and "x: shape [1, 1]" in " ".join(found.failures[0].changes)
    assert all(x.shape[-1] == len(y) for x, y, _ in calls.seen)
