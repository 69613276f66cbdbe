"""A time limit ends a check between two calls of user code; what the check had found by then is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify import deadline
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.deadline import Deadline
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Verdict
from tests.core.running_sums import one_column, one_entry, point, running
from tests.core.support import ALONE, claimed, double, problem_of, with_backward

Limited = Callable[..., CheckResult]


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Run a check that may make so many calls of forward and backward: each takes a second of this clock."""

    def run(check: str, calls: int, function: Callable[..., Any], x: Tensor, settings: Settings = ALONE) -> CheckResult:
        ticks = iter(range(1_000_000))
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
        problem = replace(problem_of(function, x), deadline=Deadline(at=calls, seconds=calls))
        return run_check(check, problem, settings, diagnose)

    return run


def constant_slope(grad: Tensor, x: Tensor) -> Tensor:
    return grad.flip(0).cumsum(0).flip(0) * x.detach().cos()


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck", "contract"])
def test_a_right_gradient_is_never_accused_whenever_time_runs_out(limited: Limited, check: str) -> None:
    unlimited = run_check(check, problem_of(torch.sin, double([0.5, -1.0])), ALONE, diagnose)
    assert unlimited.verdict is Verdict.PASS
    for calls in range(1, 200):
        found = limited(check, calls, torch.sin, double([0.5, -1.0]))
        if found == unlimited:
            break
        assert found.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE)  # the latter once all entries agree
        assert codes(found)[-1] == "GV904"
        assert found.findings[-1].message == f"timed out after {calls} s"
        assert found.evaluations.forward + found.evaluations.backward <= calls
    assert found == unlimited


@pytest.mark.slow
def test_a_wrong_gradient_keeps_its_elements_when_time_runs_out_during_the_diagnosis(limited: Limited) -> None:
    wrong = claimed(torch.sin, lambda x: 2 * x.cos())
    verdicts = [limited("gradcheck", calls, wrong, double([0.5, -1.0])) for calls in range(1, 200, 4)]
    cut = [found for found in verdicts if codes(found) == ["GV101", "GV904"]]
    assert cut
    for found in cut:
        assert (found.verdict, found.mismatched) == (Verdict.FAIL, 2)
        assert found.message.startswith("2 of 4 entries differ; timed out after ")
        assert len(found.findings[0].elements) == 2
    assert codes(verdicts[-1]) == ["GV101"]


@pytest.mark.parametrize(
    ("check", "code", "wrong"),
    [
        ("gradcheck", "GV104", running(one_entry(1700, 800, 1e-3))),
        ("gradgradcheck", "GV204", with_backward(lambda x: x.sin().cumsum(0), constant_slope)),
    ],
)
def test_a_search_that_is_cut_short_is_inconclusive(limited: Limited, check: str, code: str, wrong: Any) -> None:
    cut = [
        found for calls in (110, 130, 150, 400, 600) if codes(found := limited(check, calls, wrong, point()))[0] == code
    ]
    assert cut
    for found in cut:
        assert (found.verdict, codes(found)) == (Verdict.INCONCLUSIVE, [code, "GV904"])
        assert found.findings[0].verdict is Verdict.INCONCLUSIVE
        assert found.findings[0].message.startswith("random sums disagree; the search was not finished")
        assert found.message.startswith("random sums disagree; the search was not finished")
        assert "; timed out after " in found.message
        assert found.entries >= 2_001**2


def test_a_search_that_is_cut_short_names_the_columns_found_by_then(limited: Limited) -> None:
    wrong = running(one_column(800, 2.0))
    messages = [limited("gradcheck", calls, wrong, point()).message for calls in (108, 116, 124)]
    assert any("; the search was not finished; found so far: by x[800]; timed out" in message for message in messages)


@pytest.mark.parametrize("function", [running(), lambda x: (x - 0.75).abs().cumsum(0)])
def test_a_right_sum_is_never_accused_whenever_time_runs_out(limited: Limited, function: Any) -> None:
    verdicts = {limited("gradcheck", calls, function, point()).verdict for calls in (20, 50, 80, 110, 140)}
    assert Verdict.FAIL not in verdicts


def test_a_right_sum_at_a_kink_is_never_accused_whenever_time_runs_out(limited: Limited) -> None:
    x = torch.randn(3_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[1_234] = 0.0
    found = [
        limited("gradcheck", calls, lambda x: x.relu().cumsum(0), x.requires_grad_()) for calls in range(40, 200, 20)
    ]
    assert Verdict.FAIL not in {each.verdict for each in found}
    assert ["GV104", "GV904"] in [codes(each) for each in found]


def test_promises_that_were_seen_broken_are_kept(limited: Limited) -> None:
    def overwriting(grad: Tensor, x: Tensor) -> Tensor:
        return grad.mul_(x.cos())

    found = [
        limited("contract", calls, with_backward(torch.sin, overwriting), double([0.5, -1.0])) for calls in (50, 60, 70)
    ]
    assert any(one.verdict is Verdict.FAIL and {"GV306", "GV904"} <= set(codes(one)) for one in found)


def test_torchs_own_check_is_left_out_when_only_that_runs_out_of_time(limited: Limited) -> None:
    alone = run_check("gradcheck", problem_of(torch.sin, double([0.5, -1.0])), ALONE, diagnose)
    calls = alone.evaluations.forward + alone.evaluations.backward
    found = limited(
        "gradcheck", calls, torch.sin, double([0.5, -1.0]), replace(ALONE, torch_gradcheck=TorchGradcheck.ALWAYS)
    )
    assert found.verdict is Verdict.PASS
    assert found.torch is not None
    assert (found.torch.verdict, found.torch.message) == (Verdict.SKIP, f"timed out after {calls} s")
