"""GV401 and GV402: inputs that are not differentiated, and that forward or backward overwrites."""

from __future__ import annotations

import resource
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import gradverify
from gradverify.catalogue import section_of, sections
from gradverify.result import Verdict
from tests.checks.contract.support import X, contract, failing, remarked
from tests.core.support import normal

LABELS = torch.tensor([1, -100, 2])
LOGITS = normal(3, 4)


class CrossEntropy(Function):
    """Cross entropy without the labels -100, which it overwrites."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        keep = labels != -100
        labels[~keep] = 0
        log_p = logits.log_softmax(-1)
        ctx.save_for_backward(log_p, labels, keep)
        return -(log_p.gather(-1, labels[:, None])[:, 0] * keep).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        log_p, labels, keep = ctx.saved_tensors
        one_hot = torch.nn.functional.one_hot(labels, log_p.shape[-1])
        return g * (log_p.exp() - one_hot) * keep[:, None], None


class Twice(Function):
    """2x; a subclass overwrites its second input."""

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor, None]:
        return 2 * g, None


def test_labels_overwritten_by_forward_fail() -> None:
    result = contract(CrossEntropy.apply, LOGITS, LABELS)
    assert failing(result) == {"GV401"}
    assert "forward modifies y in place, and the next call with it computes something else" in result.message


def test_labels_cloned_by_forward_pass() -> None:
    result = contract(lambda logits, labels: CrossEntropy.apply(logits, labels.clone()), LOGITS, LABELS)
    assert result.findings == ()


@pytest.mark.parametrize("held", [[LABELS], (LABELS,), {"labels": LABELS}], ids=["list", "tuple", "dict"])
def test_labels_in_a_container_fail(held: Any) -> None:
    def loss(logits: Tensor, labels: Any) -> Any:
        return CrossEntropy.apply(logits, labels["labels"] if isinstance(labels, dict) else labels[0])

    result = contract(loss, LOGITS, held)
    assert failing(result) == {"GV401"}
    assert [finding.wrt for finding in result.findings] == ["y.labels" if isinstance(held, dict) else "y[0]"]


def test_labels_of_the_caller_are_kept() -> None:
    labels = LABELS.clone()
    contract(CrossEntropy.apply, LOGITS, labels)
    assert torch.equal(labels, LABELS)


def test_mask_overwritten_through_a_view_fails() -> None:
    class Masked(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
            ctx.save_for_backward(mask.clone())
            product = x * mask
            mask[1:].fill_(1.0)
            return product

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return g * ctx.saved_tensors[0], None

    mask = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    assert failing(contract(Masked.apply, X, mask)) == {"GV401"}


def test_running_statistics_that_outputs_do_not_depend_on_are_a_remark() -> None:
    class Tracks(Twice):
        @staticmethod
        def forward(ctx: Any, x: Tensor, running: Tensor) -> Tensor:
            running.mul_(0.9).add_(x.mean(), alpha=0.1)
            return 2 * x

    result = contract(Tracks.apply, X, torch.zeros(1, dtype=torch.float64))
    assert result.verdict is Verdict.PASS
    assert remarked(result) == {"GV401"}
    assert "the next call with it computes the same" in result.findings[0].message


def test_state_that_the_next_output_depends_on_fails() -> None:
    class Scales(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            scale.mul_(0.9).add_(x.abs().amax(), alpha=0.1)
            ctx.save_for_backward(scale.clone())
            return x / scale

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return g / ctx.saved_tensors[0], None

    result = contract(Scales.apply, X, torch.ones((), dtype=torch.float64))
    assert failing(result) >= {"GV401"}
    assert "if meant, mark it dirty and return it, or `expect: {contract: {codes: [GV401]}}`" in result.message


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_state_marked_dirty_passes(dtype: torch.dtype) -> None:
    class Counts(Twice):
        @staticmethod
        def forward(ctx: Any, x: Tensor, calls: Tensor) -> tuple[Tensor, Tensor]:
            ctx.mark_dirty(calls.add_(1))
            ctx.mark_non_differentiable(calls)
            return 2 * x, calls

    assert contract(lambda x, calls: Counts.apply(x, calls)[0], X, torch.zeros(2, dtype=dtype)).findings == ()


def test_running_statistics_of_modules_pass() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    result = gradverify.verify(torch.nn.BatchNorm1d(3, affine=False).double(), (x,), checks=("contract",))
    assert result.verdict is Verdict.PASS
    assert [check.findings for check in result.checks] == [()]


@pytest.mark.parametrize("counted", [False, True])
def test_input_on_ctx_overwritten_by_backward_fails_where_the_next_call_reads_it(counted: bool) -> None:
    class Counts(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, calls: Tensor) -> Tensor:
            ctx.calls = calls
            return x * (1 + calls.clamp(max=1) if counted else 2)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            factor = 1 + ctx.calls.clamp(max=1) if counted else 2
            ctx.calls.add_(1)
            return g * factor, None

    result = contract(Counts.apply, X, torch.zeros((), dtype=torch.float64))
    assert ("GV402" in failing(result)) is counted
    assert ("if meant, `expect: {contract: {codes: [GV402]}}`" in result.message) is counted
    assert ("GV402" in remarked(result)) is not counted


def test_saved_mask_overwritten_by_backward_fails() -> None:
    class Masked(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return ctx.saved_tensors[0].data.mul_(g).clone(), None

    assert failing(contract(Masked.apply, X, torch.full_like(X, 3.0).detach())) == {"GV402"}


@pytest.mark.parametrize("checks", [("contract",), None], ids=["contract", "all"])
def test_input_without_values_is_not_watched(checks: tuple[str, ...] | None) -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    like = torch.ones(2, device="meta")
    options = {} if checks is None else {"checks": checks}
    result = gradverify.verify(lambda x, like: 2 * x, (x, like), **options)  # type: ignore[arg-type]
    assert result.verdict is Verdict.PASS


class Two(Function):
    """x·b, which adds 1 to a."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        ctx.save_for_backward(b.clone())
        return x * b

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return g * ctx.saved_tensors[0], None, None


def test_one_tensor_given_twice_is_one_tensor_in_every_call() -> None:
    m = torch.ones(5, dtype=torch.float64)
    result = contract(Two.apply, X, m, m)
    assert failing(result) == {"GV401"}
    (finding,) = result.findings
    assert finding.wrt == "y"
    assert "forward modifies y (also given as z) in place" in finding.message
    apart = contract(Two.apply, X, m, m.clone())
    assert [(finding.wrt, finding.verdict) for finding in apart.findings] == [("y", Verdict.PASS)]


def test_the_page_shows_both_ways_to_say_that_state_is_meant_to_change() -> None:
    page = section_of("GV401", sections())
    assert page is not None
    assert "ctx.mark_dirty(steps.add_(1))" in page.text
    assert "    expect: {contract: {codes: [GV401]}}" in page.text


class Scaled(Function):
    """2x, which does not touch its second input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, _: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return 2 * g, None


@pytest.mark.parametrize("expanded", [True, False])
def test_a_large_input_that_nobody_overwrites_is_copied_once(expanded: bool) -> None:
    size = 10_000_000
    labels = torch.ones(1, dtype=torch.int64).expand(size) if expanded else torch.ones(size, dtype=torch.int64)
    contract(Scaled.apply, X, torch.ones(2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert contract(Scaled.apply, X, labels).findings == ()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown <= (0.5 if expanded else 1.5) * size * labels.element_size()


def test_an_input_whose_shape_is_changed_in_place_but_not_its_values_passes() -> None:
    class Flattens(Scaled):
        @staticmethod
        def forward(ctx: Any, x: Tensor, labels: Tensor) -> Tensor:
            labels.unsqueeze_(0)
            return 2 * x

    assert contract(Flattens.apply, X, torch.ones(5)).findings == ()


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.complex128])
def test_an_input_of_any_dtype_is_watched(dtype: torch.dtype) -> None:
    class Negates(Scaled):
        @staticmethod
        def forward(ctx: Any, x: Tensor, other: Tensor) -> Tensor:
            other.copy_(other == 0)
            return 2 * x

    assert remarked(contract(Negates.apply, X, torch.ones(3, 2, dtype=dtype).T)) == {"GV401"}


def test_input_overwritten_by_forward_is_not_said_to_be_overwritten_by_backward() -> None:
    class Tracks(Scaled):
        @staticmethod
        def forward(ctx: Any, x: Tensor, running: Tensor) -> Tensor:
            running.add_(1)
            ctx.running = running
            return 2 * x

    assert remarked(contract(Tracks.apply, X, torch.zeros(3))) == {"GV401"}
