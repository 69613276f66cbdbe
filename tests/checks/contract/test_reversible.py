"""Functions whose graph serves few backwards: GV411 is reported, and no consequence of it."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradverify.core.forward.repeatable import Repeatable
from gradverify.deadline import OutOfTime, deadline_in
from gradverify.errors import EvaluationError
from gradverify.result import Verdict
from tests.checks.contract import reversible
from tests.checks.contract.reversible import IMAGE, X, refusing, refusing_twice, root
from tests.checks.contract.support import contract, failing, remarked
from tests.core.support import gradcheck

BLOCKS = (
    reversible.Rebuilds,
    reversible.Forgets,
    reversible.Frees,
    reversible.Lasts,
    reversible.Refuses,
)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("block", BLOCKS)
def test_gradcheck_passes_a_block_whose_graph_serves_few_backwards(block: type[Function], rows: int) -> None:
    x = IMAGE[:rows].detach().clone().requires_grad_()
    result = gradcheck(block.apply, x)
    assert (result.verdict, result.mismatched, result.findings) == (Verdict.PASS, 0, ())


def test_gradcheck_fails_a_wrong_gradient_over_a_graph_that_serves_few_backwards() -> None:
    class Wrong(reversible.Lasts):
        @staticmethod
        def backward(ctx: object, grad: object) -> object:
            return 1.01 * reversible.Lasts.backward(ctx, grad)

    result = gradcheck(Wrong.apply, IMAGE)
    assert {finding.code for finding in result.findings} == {"GV101"}


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 6, 8, 10, 12, 30])
def test_gradcheck_fails_a_wrong_gradient_whose_graph_raises_after_a_few_backwards(times: int) -> None:
    result = gradcheck(refusing(times, torch.sin, lambda x: 1.01 * x.cos()).apply, X)
    assert (result.verdict, {finding.code for finding in result.findings}) == (Verdict.FAIL, {"GV101"})


@pytest.mark.parametrize("times", [2, 5, 8, 30])
def test_gradcheck_fails_a_wrong_block_whose_graph_raises_after_a_few_backwards(times: int) -> None:
    class Wrong(reversible.Refuses):
        @staticmethod
        def backward(ctx: object, grad: object) -> object:
            return 1.01 * reversible.Refuses.backward(ctx, grad)

    Wrong.times = times
    result = gradcheck(Wrong.apply, IMAGE)
    assert {finding.code for finding in result.findings} == {"GV101"}


@pytest.mark.parametrize("times", [1, 2, 3, 4, 5, 6, 8, 10, 12, 30])
def test_gradcheck_is_inconclusive_without_a_derivative_if_the_graph_raises_after_a_few_backwards(
    times: int,
) -> None:
    x = X.detach().clone()
    x[0, 1] = 0.0
    block = refusing(times, lambda x: x.abs().sqrt(), lambda x: torch.where(x == 0, 0.0, 0.5 * x.sign() / root(x)))
    result = gradcheck(block.apply, x.requires_grad_())
    assert (result.verdict, {finding.code for finding in result.findings}) == (Verdict.INCONCLUSIVE, {"GV104"})


@pytest.mark.parametrize("times", [2, 3, 4, 5, 6, 8, 12])
def test_gradgradcheck_fails_a_wrong_second_derivative_whose_graph_raises_after_a_few_backwards(times: int) -> None:
    result = contract(refusing_twice(times).apply, X, check="gradgradcheck")
    assert "GV201" in {finding.code for finding in result.findings}
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_result_of_a_worn_graph_is_not_kept_when_time_runs_out(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_time(repeatable: Repeatable) -> Repeatable:
        raise OutOfTime(deadline_in(1.0))

    monkeypatch.setattr("gradverify.checks.as_used.on_fresh_graphs", out_of_time)
    function = refusing(4, torch.sin, lambda x: 1.01 * x.cos()) if check == "gradcheck" else refusing_twice(4)
    result = contract(function.apply, X, check=check)
    assert ([finding.code for finding in result.findings], result.mismatched) == (["GV904"], 0)


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_first_result_is_kept_when_a_new_graph_raises(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(repeatable: Repeatable) -> Repeatable:
        raise EvaluationError("forward", RuntimeError("no more"))

    monkeypatch.setattr("gradverify.checks.as_used.on_fresh_graphs", raises)
    function = refusing(4, torch.sin, lambda x: 1.01 * x.cos()) if check == "gradcheck" else refusing_twice(4)
    assert contract(function.apply, X, check=check).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("block", "codes"),
    [
        (reversible.Rebuilds, {"GV411"}),
        (reversible.Lasts, {"GV411"}),
        (reversible.Forgets, set()),
        (reversible.Refuses, set()),
        (reversible.Frees, {"GV401", "GV402"}),
    ],
)
def test_contract_reports_changed_gradient_without_its_consequences(block: type[Function], codes: set[str]) -> None:
    assert failing(contract(block.apply, IMAGE)) == codes


def test_contract_message_has_number_of_backwards_a_graph_serves() -> None:
    (remark,) = [found for found in contract(reversible.Refuses.apply, IMAGE).findings if found.code == "GV411"]
    assert remark.message == (
        "a graph serves 2 backwards only: at the third, backward raises RuntimeError: raise num_bwd_passes"
    )
    differs = contract(reversible.Lasts.apply, IMAGE)
    assert differs.message.startswith("a third backward over the same graph answers differently: ")


def test_contract_message_names_freed_tensor() -> None:
    messages = [found.message for found in contract(reversible.Frees.apply, IMAGE).findings]
    assert messages[:2] == [
        "forward frees the memory of x, which the caller still holds: keep it, or free a clone",
        "backward frees the memory of output; whoever else holds it, and the next backward, sees other values",
    ]


@pytest.mark.slow
def test_memory_that_backward_frees_is_not_read_again() -> None:
    x, y = (half.detach().clone().requires_grad_() for half in IMAGE.chunk(2, -1))
    assert failing(contract(reversible.FreesBoth.apply, x, y)) == {"GV401", "GV402"}
    for check in ("compile", "forward_ad", "batching", "precision", "gradgradcheck"):
        assert contract(reversible.Frees.apply, IMAGE, check=check).verdict is not Verdict.ERROR


def test_random_forward_with_single_use_graph_is_not_checked_further() -> None:
    result = contract(reversible.Random.apply, IMAGE)
    assert failing(result) == {"GV411"}
    reason = "nothing else was asked: the forward is random, and its graph cannot be asked twice"
    assert result.message.endswith(reason)
    refused = contract(reversible.RandomOnce.apply, IMAGE)
    assert (refused.verdict, failing(refused), remarked(refused)) == (Verdict.INCONCLUSIVE, set(), {"GV411"})
    assert refused.message.endswith(reason)


def test_random_forward_with_reusable_graph_is_checked_further() -> None:
    result = contract(reversible.RandomRepeats.apply, IMAGE)
    assert [finding.code for finding in result.findings] == ["GV406"]
