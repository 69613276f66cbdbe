"""A case's time limit is shared among its checks, and a check that runs out of time reports what it has compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify import deadline
from gradverify.checks.registry import run_check
from gradverify.deadline import Deadline
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Verdict
from gradverify.run.run_checks import run_checks, share
from tests.core.support import ALONE, double, normal, one_by_one, problem_of, with_backward

pytestmark = pytest.mark.slow

INPUTS, OUTPUTS = 15, 3
WEIGHTS = normal(OUTPUTS, INPUTS, seed=1).detach()
X = normal(INPUTS, seed=2)
Scale = Callable[[Tensor], Tensor]


class Clock:
    """A clock that only user code moves: by a second with every call of forward or backward."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def ticking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a second added to each of its calls."""

        def called(*args: Any) -> Any:
            self.now += 1.0
            return function(*args)

        return called


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=found.monotonic))
    return found


def function(clock: Clock, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """Return a Function whose calls take a second each, and that takes one point at a time."""
    return one_by_one(with_backward(clock.ticking(forward), clock.ticking(backward)))


def sums(x: Tensor) -> Tensor:
    return WEIGHTS @ x.tanh()


def scaled(scale: Scale) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a backward of `sums` whose gradient is right but for a factor of each column."""
    return lambda grad, x: (grad @ WEIGHTS) * (1 - x.tanh().square()) * scale(x)


def column(place: int, factor: float) -> Scale:
    """Return the factor of each column: wrong in one of them."""
    return lambda x: torch.where(torch.arange(INPUTS) == place, factor, 1.0)


def right(x: Tensor) -> Tensor:
    return torch.ones_like(x)


def checked(clock: Clock, seconds: float, tested: Any, x: Tensor = X, check: str = "gradcheck") -> CheckResult:
    clock.now = 0.0
    problem = replace(problem_of(tested, x), deadline=Deadline(at=seconds, seconds=seconds))
    return run_check(check, problem, ALONE, diagnose)


def cut(clock: Clock, scale: Scale, every: int) -> tuple[list[CheckResult], CheckResult]:
    """Return gradcheck's results for time limits that are too short, `every` so many seconds, and without a limit."""
    tested = function(clock, sums, scaled(scale))
    whole = checked(clock, 1e9, tested)
    return [checked(clock, seconds, tested) for seconds in range(1, int(clock.now), every)], whole


def compared(result: CheckResult) -> int | None:
    """Return the number of columns that a result says were compared, None if it says nothing of them."""
    _, colon, text = result.findings[-1].message.partition(": ") if result.findings else ("", "", "")
    return int(text.split(" of ")[0]) if colon and text.endswith("compared") else None


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_right_gradient_says_how_many_columns_were_compared(clock: Clock) -> None:
    found, whole = cut(clock, right, every=1)
    assert whole.verdict is Verdict.PASS
    counts = [compared(result) for result in found]
    known = [count for count in counts if count is not None]
    assert known == sorted(known)
    assert set(known) == {*range(INPUTS)}
    for result, count in zip(found, counts, strict=True):
        assert codes(result) == ["GV904"]
        if count is None:
            assert result.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)
        else:
            assert result.verdict is Verdict.INCONCLUSIVE
            assert result.message == result.findings[0].message
            assert result.message.endswith(f" s: {count} of 15 columns compared")
            assert result.undetermined == (INPUTS - count) * OUTPUTS


def test_a_wrong_column_is_shown_once_it_differs_and_fails_once_that_is_confirmed(clock: Clock) -> None:
    found, whole = cut(clock, column(3, 1.5), every=2)
    assert (whole.verdict, whole.mismatched) == (Verdict.FAIL, OUTPUTS)
    stages = [(result.verdict, codes(result)) for result in found]
    assert [stage for place, stage in enumerate(stages) if stage not in stages[:place]] == [
        (Verdict.ERROR, ["GV904"]),
        (Verdict.INCONCLUSIVE, ["GV904"]),
        (Verdict.INCONCLUSIVE, ["GV104", "GV904"]),
        (Verdict.FAIL, ["GV101", "GV904"]),
    ]
    assert stages == sorted(stages, key=stages.index)  # none is left again
    for result in found:
        for finding in result.findings[:-1]:
            assert {element.input_index for element in finding.elements} <= {(3,)}
            assert ("differs so far" in finding.message) == (finding.code == "GV104")


def test_columns_that_one_line_confirms_fail_together_when_time_runs_out_later(clock: Clock) -> None:
    found, whole = cut(clock, lambda x: 1.5 * right(x), every=3)
    assert whole.mismatched == INPUTS * OUTPUTS
    failed = [result for result in found if result.verdict is Verdict.FAIL]
    assert failed
    assert {result.mismatched for result in failed} == {INPUTS * OUTPUTS}
    assert all("45 of 45 entries differ; timed out after " in result.message for result in failed)


def test_confirmed_columns_fail_while_others_are_not_confirmed_yet(clock: Clock) -> None:
    """No line confirms them together: at the kink of one input, 0.3 is a right slope of |x|."""

    def forward(x: Tensor) -> Tensor:
        return sums(x) + x[0].abs()

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        found = 1.5 * (grad @ WEIGHTS) * (1 - x.tanh().square())
        found[0] = found[0] / 1.5 + 0.3 * grad.sum()
        return found

    tested, x = function(clock, forward, backward), X.detach().clone()
    x[0] = 0.0
    x.requires_grad_()
    whole = checked(clock, 1e9, tested, x)
    assert (whole.verdict, whole.mismatched, whole.kinks) == (Verdict.FAIL, (INPUTS - 1) * OUTPUTS, OUTPUTS)
    last = int(clock.now)  # the columns are confirmed one by one shortly before the end
    limits = (*range(1, last - 45, 45), *range(last - 45, last, 3))
    found = [checked(clock, seconds, tested, x) for seconds in limits]
    partial = [result for result in found if result.verdict is Verdict.FAIL and result.mismatched < whole.mismatched]
    assert partial
    for result in partial:
        assert codes(result) == ["GV101", "GV104", "GV100", "GV904"]
        count = compared(result)
        assert count is not None
        assert result.mismatched == (count - 1) * OUTPUTS
        assert result.message.startswith(f"{result.mismatched} of 45 entries differ; timed out after ")


def test_a_gradient_that_is_right_so_far_is_inconclusive(clock: Clock) -> None:
    found, whole = cut(clock, column(INPUTS - 1, 2.0), every=5)
    assert whole.verdict is Verdict.FAIL
    before = [result for result in found if compared(result) in range(1, INPUTS - 1)]
    assert before
    assert {result.verdict for result in before} == {Verdict.INCONCLUSIVE}
    assert all(codes(result) == ["GV904"] for result in before)


def vjp(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return torch's vjp of a function, itself differentiable."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        graph = torch.is_grad_enabled()
        with torch.enable_grad():
            inside = x if x.requires_grad else x.detach().requires_grad_()
            (found,) = torch.autograd.grad(function(inside), inside, grad, create_graph=graph)
        return found

    return backward


def at_kinks() -> Tensor:
    x = X.detach().clone()
    x[::4] = 0.0
    return x.requires_grad_()


def in_float32(x: Tensor) -> Tensor:
    """Return the sums of squares of inputs that numpy rounds to float32."""
    return WEIGHTS @ torch.from_numpy(x.detach().numpy().astype(np.float32).astype(np.float64)).square()


def in_bfloat16(x: Tensor) -> Tensor:
    """Return the sums of squares of inputs that are rounded to bfloat16."""
    return WEIGHTS @ x.to(torch.bfloat16).double().square()


_CUTS = 5  # time limits tried
RIGHT: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], Tensor]] = {
    "abs": (lambda x: WEIGHTS @ x.abs(), lambda x: WEIGHTS @ x.abs(), at_kinks()),
    "ties": (*2 * (lambda x: torch.stack([x.amax(), x.sum()]),), double([1.0, 1.0, 0.5, 1.0])),
    "fast": (*2 * (lambda x: WEIGHTS @ (200 * x).sin(),), X),
    "root": (*2 * (lambda x: WEIGHTS @ x.abs().sqrt(),), at_kinks()),
    "jump": (*2 * (lambda x: WEIGHTS @ (x + x.sign()),), at_kinks()),
    "float32": (in_float32, lambda x: WEIGHTS @ x.square(), X),
    "bfloat16": (in_bfloat16, lambda x: WEIGHTS @ x.square(), X),
}


@pytest.mark.parametrize(
    ("name", "check"), [*((name, "gradcheck") for name in RIGHT), ("abs", "gradgradcheck"), ("ties", "gradgradcheck")]
)
def test_a_right_gradient_is_never_accused_wherever_time_runs_out(clock: Clock, name: str, check: str) -> None:
    forward, differentiated, x = RIGHT[name]
    tested = function(clock, forward, vjp(differentiated))
    whole = checked(clock, 1e9, tested, x, check)
    calls = int(clock.now)
    assert whole.verdict is not Verdict.FAIL
    for seconds in range(1, calls, max(1, calls // _CUTS)):
        found = checked(clock, seconds, tested, x, check)
        assert found.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)
        assert codes(found)[-1] == "GV904"


def test_a_graph_that_serves_a_few_backwards_only_is_never_accused_wherever_time_runs_out(clock: Clock) -> None:
    weights = normal(INPUTS, INPUTS, seed=1).detach()

    class Wearing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.kept, ctx.asked = x.clone(), 0
            return weights @ x.tanh()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            ctx.asked += 1
            pulled = torch.from_numpy(grad.numpy() @ weights.numpy()) * (1 - ctx.kept.tanh().square())
            return pulled if ctx.asked <= 3 else 2 * pulled

    tested = one_by_one(clock.ticking(Wearing.apply))
    assert checked(clock, 1e9, tested).verdict is Verdict.PASS
    calls = int(clock.now)
    for seconds in range(1, calls, calls // _CUTS):
        assert checked(clock, seconds, tested).verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)


def test_three_checks_have_shares_as_3_to_2_to_1(clock: Clock) -> None:
    limit, lengths = Deadline(at=60.0, seconds=60.0), []
    for left in (3, 2, 1):
        found = share(limit, left)
        assert found is not None
        lengths.append(found.at - clock.now)
        clock.now = found.at
    assert lengths == [30.0, 20.0, 10.0]
    assert clock.now == limit.at


def test_time_that_a_check_does_not_need_is_left_to_those_after_it(clock: Clock) -> None:
    limit = Deadline(at=60.0, seconds=60.0)
    clock.now = 1.0  # what the first of three needed
    assert share(limit, 2) == Deadline(at=1.0 + 2 / 3 * 59.0, seconds=39.0, share_of=60.0)
    assert share(limit, 1) is limit
    assert share(None, 2) is None


def test_a_slow_check_leaves_time_for_those_after_it(clock: Clock) -> None:
    forward, differentiated, _ = RIGHT["fast"]
    tested = function(clock, forward, vjp(differentiated))
    checked(clock, 1e9, tested)
    limit, clock.now = 1.2 * clock.now, 0.0
    problem = replace(problem_of(tested, X), deadline=Deadline(at=limit, seconds=limit))
    first, second = run_checks(problem, ("gradcheck", "contract"), dict.fromkeys(("gradcheck", "contract"), ALONE))
    assert first.verdict is Verdict.INCONCLUSIVE
    assert f" of {limit:g} s: " in first.message
    assert second.verdict is Verdict.PASS


def test_checks_are_skipped_once_the_limit_of_the_case_has_passed(clock: Clock) -> None:
    def slow(x: Tensor) -> Tensor:
        clock.now += 100.0
        return x.sin()

    problem = replace(problem_of(slow, X), deadline=Deadline(at=60.0, seconds=60.0))
    found = run_checks(problem, ("gradcheck", "contract"), dict.fromkeys(("gradcheck", "contract"), ALONE))
    assert [result.verdict for result in found] == [Verdict.ERROR, Verdict.SKIP]
    assert found[0].message == "timed out after 40 of 60 s"
    assert found[1].message == "not run: gradcheck timed out after 40 of 60 s"
