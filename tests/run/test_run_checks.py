"""Exceptions of gradverify itself: they end a check, not the case, and are not the user's."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify import verify
from gradverify.result import Verdict
from gradverify.run import run_checks
from tests.run.test_second_opinion import Squared

CHECKS = ("gradcheck", "contract")


def _raising(*_: object) -> Any:
    return [][0]


_raises_in_c = partial(operator.getitem, [])  # TypeError, in the line of gradverify that calls it


def _out_of_memory(*_: object) -> Any:
    raise MemoryError("too much")


def _inputs() -> tuple[Tensor, ...]:
    return (torch.ones(3, dtype=torch.float64).requires_grad_(),)


def test_an_exception_of_gradverify_ends_the_check_that_raised_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checks, "diagnose", _raises_in_c)
    found = verify(Squared, _inputs(), checks=CHECKS)
    gradcheck, contract = found.checks
    assert (gradcheck.verdict, contract.verdict) == (Verdict.ERROR, Verdict.PASS)
    (finding,) = gradcheck.findings
    assert finding.code == "GV909"
    assert finding.message.startswith("gradverify itself raised TypeError: list indices must be integers")
    assert "in gradverify/checks/derivative.py:" in finding.message


def test_error_of_a_kernel_that_was_started_before_is_not_taken_for_one() -> None:
    late = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert not run_checks._is_defect(late)
    assert run_checks._is_defect(RuntimeError("expected a tensor"))


@pytest.mark.parametrize(("raising", "error"), [(_raising, IndexError), (_out_of_memory, MemoryError)])
def test_an_exception_of_user_code_or_of_memory_is_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch, raising: Any, error: type[Exception]
) -> None:
    monkeypatch.setattr(run_checks, "diagnose", raising)
    with pytest.raises(error):
        verify(Squared, _inputs(), checks=CHECKS)
