"""A cotangent is not backward's to write to."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck, with_backward


def _in_place(grad: Tensor, x: Tensor) -> Tensor:
    return grad.mul_(x.cos())


def _on_a_clone(grad: Tensor, x: Tensor) -> Tensor:
    return grad.clone().mul_(x.cos())


def test_a_backward_that_writes_to_its_cotangent_is_told_so() -> None:
    for size in (3, 30, 300):
        x = double([0.1 * k for k in range(size)])
        found = gradcheck(with_backward(lambda x: x.sin(), _in_place), x)
        assert found.verdict is Verdict.FAIL
        assert [finding.code for finding in found.findings] == ["GV306"]
        assert gradcheck(with_backward(lambda x: x.sin(), _on_a_clone), x).verdict is Verdict.PASS


def test_what_it_is_told_of_its_answers_is_true_nevertheless() -> None:
    found = gradcheck(with_backward(lambda x: x.sin(), lambda grad, x: grad.mul_(2 * x.cos())), double([0.3, 1.0]))
    assert found.verdict is Verdict.FAIL
    assert found.mismatched == 2
    assert "not linear" not in found.message
    element = found.findings[0].elements[0]
    assert abs(element.analytic / element.numeric - 2) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_whatever_its_precision(dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, 1.0, -0.5], dtype=dtype, requires_grad=True)
    found = gradcheck(with_backward(lambda x: 3 * x, lambda grad, _: grad.mul_(3)), x)
    assert [finding.code for finding in found.findings] == ["GV306"]


def test_what_another_function_wrote_to_was_its_own() -> None:
    inner = with_backward(lambda x: x.sin(), _in_place)
    assert gradcheck(lambda x: 2 * inner(x), double([0.3, 1.0])).verdict is Verdict.PASS
