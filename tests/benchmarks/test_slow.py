"""What `benchmarks.slow` counts, how it sums up, and which stage a forward belongs to."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from benchmarks.record import Standing
from benchmarks.slow import Measured, measured, row_of, summary
from benchmarks.slow_costs import Cost, CountedCalls, our_cost, torch_cost
from benchmarks.slow_stages import stage_table
from benchmarks.slow_subject import Slow, Variant, slow, with_factor
from gradverify.deadline import Deadline, OutOfTime, deadline_in
from gradverify.result import Verdict
from tests.zoo.small_functions import Exp
from tests.zoo.specimen import normal

EXP: Slow = slow(
    "exp",
    Exp,
    one_entry=((1,), "x", (1,)),
    throughout=with_factor(Exp, 0, 2.0),
    approximate=with_factor(Exp, 0, 1 + 1e-5),
    plain=torch.exp,
    x=normal(6),
)


def cost(verdict: Verdict, seconds: float, forward: int) -> Cost:
    return Cost(verdict=verdict, seconds=seconds, forward=forward, backward=1, result=None)


def row(variant: Variant, ours: float, theirs: float, second: Verdict = Verdict.PASS) -> Measured:
    return Measured(
        name="f",
        variant=variant,
        ours=(cost(Verdict.PASS, ours, 30), cost(second, 2.0, 10)),
        theirs=(cost(Verdict.PASS, theirs, 6), cost(Verdict.PASS, 1.0, 4)),
    )


def test_forwards_and_backwards_are_counted() -> None:
    counted = CountedCalls(Exp, deadline_in(60), lambda: None)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        counted(x)
    output = counted(x)
    for _ in range(3):
        torch.autograd.grad(output.sum(), x, retain_graph=True)
    assert (counted.forward, counted.backward) == (2, 3)


def test_past_the_deadline_forward_is_not_called() -> None:
    counted = CountedCalls(Exp, Deadline(at=time.monotonic() - 1, seconds=60), lambda: None)
    with pytest.raises(OutOfTime):
        counted(torch.ones(2))
    assert counted.forward == 0


@pytest.mark.slow
def test_torch_calls_forward_once_and_twice_per_input() -> None:
    found = torch_cost("gradcheck", Exp, EXP.variants[Variant.RIGHT])
    assert (found.verdict, found.forward) == (Verdict.PASS, 2 * 6 + 2)


def test_torch_accepts_an_approximate_gradient_and_ours_does_not() -> None:
    found = measured(EXP, Variant.APPROXIMATE)
    assert (found.ours[0].verdict, found.theirs[0].verdict) == (Verdict.FAIL, Verdict.PASS)
    assert row_of(found).standing is Standing.RIGHT


def test_a_wrong_function_that_passes_is_missed_and_a_right_one_that_fails_a_false_alarm() -> None:
    one = measured(EXP, Variant.ONE_ENTRY)
    assert row_of(replace(one, variant=Variant.RIGHT)).standing is Standing.FALSE_ALARM
    right = measured(EXP, Variant.RIGHT)
    assert row_of(replace(right, variant=Variant.ONE_ENTRY)).standing is Standing.MISSED
    assert row_of(right).forward == sum(each.forward for each in right.ours)


def test_summary_has_the_ratios_and_their_goals() -> None:
    rows = [row(Variant.RIGHT, 2.0, 3.0), row(Variant.ONE_ENTRY, 10.0, 1.0), row(Variant.APPROXIMATE, 4.0, 1.0)]
    assert [(each.name, round(each.value, 3), each.goal) for each in summary(rows)] == [
        ("wall time, in sum", 2.75, 2.0),
        ("forwards, in sum", 4.0, 1.5),
        ("wall time, median", 3.0, 1.5),
        ("wall time, right, median", 1.0, 1.5),
        ("wall time, one entry, median", 6.0, 1.5),
        ("wall time, approximate, median", 3.0, 1.5),
        ("ours, wrong or approximate over its right twin, median", 2.25, 2.0),
        ("ours, wrong or approximate over its right twin, most", 3.0, 2.0),
        ("wall time, order 2, median", 2.0, 3.0),
        ("wall time, order 2, most", 2.0, 3.0),
    ]


def test_a_skipped_order_2_and_a_row_without_its_twin_are_left_out() -> None:
    names = [each.name for each in summary([row(Variant.ONE_ENTRY, 1.0, 1.0, Verdict.SKIP)])]
    assert not [name for name in names if "order 2" in name or "twin" in name]
    assert list(summary([])) == []


def test_every_forward_belongs_to_a_stage() -> None:
    lines = stage_table([(EXP, Variant.RIGHT), (EXP, Variant.THROUGHOUT)], "gradcheck").splitlines()
    assert lines[0].split() == ["gradcheck:", "forwards", "right", "throughout", "in", "all"]
    assert [line for line in lines if line.startswith("other")] == []
    counts = [
        our_cost("gradcheck", EXP.functions[v], EXP.variants[v]).forward for v in (Variant.RIGHT, Variant.THROUGHOUT)
    ]
    assert lines[-1].split() == ["in", "all", *map(str, (*counts, sum(counts)))]
    assert any(line.startswith("ladder") for line in lines)
