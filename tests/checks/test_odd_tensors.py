"""Sparse, nested, quantised and mkldnn tensors and subclasses, as constants and as differentiated inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify import verify
from gradverify.checks.registry import CHECKS
from gradverify.result import CheckResult, Verdict
from tests.checks.odd_tensors import (
    CONSTANTS,
    POINT,
    Forgetful,
    Scaled,
    Sealed,
    Sorted,
    Square,
    Wrapper,
    WrongScaled,
    attributed,
    quietly,
)

# torch warns once in a process that some kinds of tensors are new or old; which test that is depends on the order.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

COMPILE = "compile"  # takes seconds each
NAMES = tuple(check.name for check in CHECKS if check.name != COMPILE)


def verified(function: Any, *inputs: Any, checks: tuple[str, ...] = NAMES) -> dict[str, CheckResult]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {result.check: result for result in verify(function, inputs, checks=checks).checks}


def leaf(dtype: torch.dtype = torch.float64) -> Tensor:
    return POINT.to(dtype).clone().requires_grad_()


@pytest.mark.parametrize("constant", CONSTANTS.values(), ids=CONSTANTS.keys())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_right_function_of_an_odd_constant_passes(constant: Callable[[], Tensor], dtype: torch.dtype) -> None:
    results = verified(Scaled, leaf(dtype), quietly(constant))
    assert {result.verdict for result in results.values()} <= {Verdict.PASS, Verdict.SKIP}
    assert [results[name].verdict for name in ("gradcheck", "gradgradcheck", "contract")] == [Verdict.PASS] * 3


@pytest.mark.parametrize("constant", CONSTANTS.values(), ids=CONSTANTS.keys())
def test_wrong_function_of_an_odd_constant_fails(constant: Callable[[], Tensor]) -> None:
    results = verified(WrongScaled, leaf(), quietly(constant), checks=("gradcheck",))
    assert (results["gradcheck"].verdict, results["gradcheck"].mismatched) == (Verdict.FAIL, 4)


@pytest.mark.slow
def test_compile_takes_a_sparse_constant_and_a_subclass() -> None:
    for constant in ("sparse COO", "attribute and __torch_function__"):
        found = verified(Scaled, leaf(), quietly(CONSTANTS[constant]), checks=(COMPILE,))
        assert found[COMPILE].verdict in (Verdict.PASS, Verdict.SKIP)


@pytest.mark.parametrize("kind", [Sorted, Forgetful])
def test_differentiated_subclass_keeps_class_and_attributes(kind: type[Sorted] | type[Forgetful]) -> None:
    x = attributed(POINT.clone(), kind).requires_grad_()
    results = verified(Square, x)
    assert {name: result.verdict for name, result in results.items() if result.verdict is not Verdict.PASS} == {
        "precision": Verdict.SKIP,
        "parity": Verdict.SKIP,
    }
    assert type(x) is kind


def test_attribute_of_a_plain_tensor_is_kept() -> None:
    class Halves(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Tensor:
            ctx.share = x.share
            return x * x.share

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.share

    x: Any = leaf()
    x.share = 0.5
    results = verified(Halves, x)
    assert [results[name].verdict for name in ("gradcheck", "gradgradcheck", "contract")] == [Verdict.PASS] * 3


@pytest.mark.slow
def test_differentiated_wrapper_is_judged_through_its_own_copy() -> None:
    class Labelled(Function):
        factor = 2.0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Tensor:
            assert x.label == "a"
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Labelled.factor * grad * ctx.saved_tensors[0]

    x = Wrapper(POINT.clone(), "a").requires_grad_()
    results = verified(Labelled, x)
    assert [results[name].verdict for name in ("gradcheck", "gradgradcheck", "contract")] == [Verdict.PASS] * 3
    Labelled.factor = 1.9
    assert verified(Labelled, x)["gradcheck"].mismatched == 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3, dtype=torch.float64).to_sparse(), "sparse_coo"),
        (lambda: torch.eye(3, dtype=torch.float64).to_sparse_csr(), "sparse_csr"),
        (lambda: torch.nested.nested_tensor([POINT, POINT[:2]]), "nested"),
        (lambda: torch.nested.nested_tensor([POINT, POINT[:2]], layout=torch.jagged), "nested"),
        (lambda: Sealed(POINT.clone(), "a"), "a Sealed whose entries cannot be replaced with copy_"),
    ],
)
def test_input_whose_entries_cannot_be_moved_is_named(make: Callable[[], Tensor], words: str) -> None:
    results = verified(lambda x: x * x, quietly(make).requires_grad_())
    reason = f"x is {words}: only dense tensors are judged"
    assert {result.message for result in results.values()} == {reason}
    assert [finding.code for result in results.values() for finding in result.findings] == ["GV104", "GV204"]
    assert {results["gradcheck"].verdict, results["contract"].verdict} == {Verdict.INCONCLUSIVE, Verdict.SKIP}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: (2 * x).to_sparse(), "sparse_coo"),
        (lambda x: torch.nested.as_nested_tensor([x * x, x[:2]]), "nested"),
        (lambda x: torch.nested.nested_tensor_from_jagged(x * x, torch.tensor([0, 1, 4])), "nested"),
    ],
)
def test_output_whose_entries_cannot_be_compared_is_named(function: Callable[[Tensor], Tensor], words: str) -> None:
    results = verified(function, leaf(), checks=("gradcheck", "gradgradcheck", "contract"))
    assert {result.message for result in results.values()} == {f"output is {words}: only dense tensors are judged"}


@pytest.mark.parametrize("constant", ["attribute and __torch_function__", "wrapper"])
def test_output_in_a_subclass_is_judged(constant: str) -> None:
    results = verified(lambda x, other: x[:1] * other, leaf(), quietly(CONSTANTS[constant]))
    assert [results[name].verdict for name in ("gradcheck", "gradgradcheck", "contract")] == [Verdict.PASS] * 3


def test_sparse_constant_is_never_made_dense() -> None:
    side = 10**7
    huge = torch.sparse_coo_tensor([[0, 5], [1, 7]], [0.5, 2.0], (side, side), dtype=torch.float64)

    class SumOfValues(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, matrix: Tensor) -> Tensor:
            ctx.save_for_backward(matrix)
            return x * matrix.coalesce().values().sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.saved_tensors[0].coalesce().values().sum(), None

    results = verified(SumOfValues, leaf(), huge)
    assert [results[name].verdict for name in ("gradcheck", "gradgradcheck", "contract")] == [Verdict.PASS] * 3
