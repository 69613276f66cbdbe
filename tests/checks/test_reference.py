"""GV701 to GV706: outputs and gradients held against plain code in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from gradverify.case import Settings, Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import Against, CheckResult, Verdict
from gradverify.run.call import Call
from gradverify.run.reference import with_reference
from tests.core.support import with_backward

Change = Callable[[Tensor], Tensor]
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
COUNTS = (1, 3, 4096, 512)
SEED_OF_LARGE_LAST = 3  # the last of the numbers drawn is not small: in bfloat16, an entry far below others may be zero


def held_against(function: Callable[..., Any], reference: Callable[..., Any], *inputs: Any) -> CheckResult:
    names = ["x", "y", "z"][: len(inputs)]
    problem = bind(function, inputs, names=names)
    call = Call(names=tuple(names), args=inputs)
    return run_check("reference", with_reference(problem, reference, call, name="plain"), Settings(), diagnose)


def drawn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (scale * values).to(dtype).requires_grad_()


def unchanged(tensor: Tensor) -> Tensor:
    return tensor.clone()


def kernel(plain: Callable[..., Tensor], forward: Change = unchanged, backward: Change = unchanged) -> Any:
    """Return `plain` as a Function whose output and gradients are changed on purpose."""

    class Kernel(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.inputs = [tensor.detach().requires_grad_() for tensor in inputs]
            with torch.enable_grad():
                ctx.output = plain(*ctx.inputs)
            return forward(ctx.output.detach())

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return tuple(map(backward, torch.autograd.grad(ctx.output, ctx.inputs, grad)))

    return Kernel.apply


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def layer_norm(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], y, z)


def rms_norm(x: Tensor, y: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], y, 1e-6)


def product(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


def added_up(x: Tensor) -> Tensor:
    return x.sum(-1)


def one_after_another(x: Tensor) -> Tensor:
    """Return sums over the last dimension, each term added in the tensor's own dtype."""
    total = x[..., 0]
    for column in x[..., 1:].unbind(-1):
        total = total + column
    return total


def by_rows(x: Tensor) -> Tensor:
    return (x.float() - x.float().amax(-1, keepdim=True)).softmax(-1).to(x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
def test_right_functions_pass_in_every_dtype(count: int, dtype: torch.dtype) -> None:
    x, y, z = drawn(3, count, dtype=dtype), drawn(count, dtype=dtype, seed=1), drawn(count, dtype=dtype, seed=2)
    matrix = drawn(count, 2, dtype=dtype, seed=3)
    for plain, inputs in (
        (softmax, (x,)),
        (layer_norm, (x, y, z)),
        (rms_norm, (x, y)),
        (product, (x, matrix)),
        (added_up, (x,)),
    ):
        found = held_against(kernel(plain), plain, *inputs)
        # The gradient of x / |x| is zero but for epsilon, below what low precision leaves of it.
        is_lost = plain is rms_norm and count == 1 and dtype in (torch.float16, torch.bfloat16)
        assert found.verdict is (Verdict.INCONCLUSIVE if is_lost else Verdict.PASS), found.message


def last_entry_zero(tensor: Tensor) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[-1] = 0
    return changed


def shifted(tensor: Tensor) -> Tensor:
    return tensor.roll(1, 0)


def without_mask(tensor: Tensor) -> Tensor:
    return torch.where(tensor > tensor.mean(), tensor, 0.5 * tensor)


def times(factor: float) -> Change:
    return lambda tensor: tensor * factor


def with_nan(tensor: Tensor) -> Tensor:
    changed = tensor.clone()
    changed.view(-1)[0] = math.nan
    return changed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("change", [last_entry_zero, shifted, without_mask, times(1.05), with_nan])
def test_planted_mistakes_are_found_in_every_dtype(change: Change, dtype: torch.dtype) -> None:
    x = drawn(16, 64, dtype=dtype, seed=SEED_OF_LARGE_LAST)
    of_output, of_gradient = (
        held_against(kernel(softmax, **{where: change}), softmax, x) for where in ("forward", "backward")
    )
    codes = ("GV705", "GV705") if change is with_nan else ("GV701", "GV702")
    assert (of_output.findings[0].code, of_gradient.findings[0].code) == codes
    assert (of_output.findings[0].of, of_gradient.findings[0].wrt) == ("output", "x")


@pytest.mark.parametrize(("factor", "dtype"), [(1.0001, torch.float32), (1.01, torch.bfloat16), (1.001, torch.float64)])
def test_common_factors_are_found(factor: float, dtype: torch.dtype) -> None:
    x = drawn(64, 64, dtype=dtype)
    found = held_against(kernel(softmax, backward=times(factor)), softmax, x)
    assert found.verdict is Verdict.FAIL


def test_the_finding_of_a_gradient_says_how_far_it_is_off() -> None:
    found = held_against(kernel(softmax, backward=last_entry_zero), softmax, drawn(4, 8))
    (finding,) = found.findings
    (element,) = finding.elements
    assert finding.against is Against.REFERENCE
    assert (finding.of, finding.wrt, finding.total) == (None, "x", 1)
    assert (element.output_index, element.input_index, element.analytic) == ((), (3, 7), 0.0)
    assert element.error == abs(element.numeric) > element.allowed > 0
    assert element.ulps is not None and element.ulps > 1e6
    assert finding.message.startswith("1 of 32 entries of the gradient by x differs; for a ")
    assert found.message.startswith("1 of 64 entries differs from plain; finds a relative error of ")


def test_a_sum_in_its_own_dtype_is_right_in_float32_and_wrong_in_bfloat16() -> None:
    for dtype, verdict in ((torch.float32, Verdict.PASS), (torch.bfloat16, Verdict.FAIL)):
        found = held_against(kernel(one_after_another), added_up, drawn(2, 2048, dtype=dtype))
        assert found.verdict is verdict


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("change", "cause", "explanation"),
    [
        (times(-1.0), "sign-flip", "analytic = -numeric in every entry"),
        (times(0.5), "constant-factor", "analytic = 1/2 × numeric in every entry: a factor of 2 is missing"),
        (last_entry_zero, "single-elements", "1 of 32 elements differs, in all entries: x[3, 7], where analytic = 0"),
        (shifted, "shifted", "the gradient by x is rolled by 1 along dimension 0"),
    ],
)
def test_causes_are_named_with_the_reference_in_place_of_differences(
    change: Change, cause: str, explanation: str, dtype: torch.dtype
) -> None:
    x = drawn(4, 8, dtype=dtype, seed=SEED_OF_LARGE_LAST)
    (finding,) = held_against(kernel(softmax, backward=change), softmax, x).findings
    assert (finding.cause, finding.message.partition("\n")[2]) == (cause, explanation)


def rows_from_34_zero(gradient: Tensor) -> Tensor:
    changed = gradient.clone()
    changed[34:] = 0
    return changed


OVER_ALL = "(seen in 5 random sums over all outputs)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("change", "cause", "words"),
    [
        (times(-1.0), "sign-flip", f"analytic = -numeric in every entry {OVER_ALL}"),
        (times(1 / 37), "wrong-count", f"with n = 37 = size of x's dimension 0: a count is wrong {OVER_ALL}"),
        (shifted, "shifted", f"the gradient by x is rolled by 1 along dimension 0 {OVER_ALL}"),
        (rows_from_34_zero, "boundary-tile", f"where x is in rows 34 to 36, the last 3 of 37 {OVER_ALL}"),
        (torch.zeros_like, "detached", ""),
    ],
)
def test_causes_in_a_jacobian_of_millions_of_entries(
    change: Change, cause: str, words: str, dtype: torch.dtype
) -> None:
    x = drawn(37, 65, dtype=dtype)
    found = held_against(kernel(functional.gelu, backward=change), functional.gelu, x)
    (finding,) = found.findings
    assert finding.cause == cause
    assert finding.message.endswith(words)
    assert max(found.evaluations.forward, found.evaluations.backward) <= 25


def test_an_output_row_that_a_sum_forgets_is_named() -> None:
    forgetting = with_backward(torch.mul, lambda grad, x, y: (grad * y, (grad * x)[:-1].sum(0)))
    (finding,) = held_against(forgetting, torch.mul, drawn(13, 33), drawn(33)).findings
    assert (finding.wrt, finding.cause) == ("y", "single-elements")
    assert "1 of 13 outputs differs, in all entries: output[12, 0], where analytic = 0" in finding.message
    assert finding.message.endswith("(seen in random sums of output over all dimensions but 0)")


def test_a_claim_outside_both_slopes_of_a_kink_is_named() -> None:
    wrong = with_backward(torch.relu, lambda grad, x: grad * torch.where(x == 0, -8.0, (x > 0).to(x.dtype)))
    x = torch.tensor([-1.0, 0.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)
    (finding,) = held_against(wrong, torch.relu, x).findings
    assert (finding.code, finding.cause) == ("GV702", "outside-slopes")


def test_an_error_without_a_pattern_in_a_large_jacobian_gets_no_cause() -> None:
    noise = 1 + 0.5 * torch.randn(37, 65, generator=torch.Generator().manual_seed(9))
    (finding,) = held_against(kernel(functional.gelu, backward=noise.mul), functional.gelu, drawn(37, 65)).findings
    assert finding.cause is None


@pytest.mark.parametrize(("rtol", "verdict"), [(1e-4, Verdict.FAIL), (1e-2, Verdict.PASS)])
def test_tolerances_of_the_case_accept_an_error(rtol: float, verdict: Verdict) -> None:
    x = drawn(3, 5)
    problem = bind(kernel(softmax, backward=times(1.001)), (x,), names=("x",))
    problem = with_reference(problem, softmax, Call(names=("x",), args=(x,)), name="plain")
    assert run_check("reference", problem, Settings(tolerances=Tolerances(rtol=rtol))).verdict is verdict


def cross_entropy(x: Tensor) -> Tensor:
    rows = torch.arange(len(x))
    return (x.logsumexp(-1) - x[rows, rows * 7 % x.shape[1]]).mean()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(31, 127), (256, 512)])
def test_a_thousandth_of_an_entry_is_found_where_a_few_entries_are_far_larger(shape: tuple[int, int]) -> None:
    """The gradient of cross entropy is about -1 at one entry of each row, and a probability at all others."""

    def one_off(gradient: Tensor) -> Tensor:
        changed = gradient.clone()
        changed.view(-1)[gradient.numel() * 3 // 5] *= 1.001
        return changed

    x = drawn(*shape)
    assert held_against(kernel(cross_entropy), cross_entropy, x).verdict is Verdict.PASS
    found = held_against(kernel(cross_entropy, backward=one_off), cross_entropy, x)
    assert (found.verdict, found.mismatched) == (Verdict.FAIL, 1)


class Attention(Function):
    """Attention by hand, right."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(x, y, z)
        return attention(x, y, z)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, z = ctx.saved_tensors
        weights, by_weights = (x @ y.mT).softmax(-1), g @ z.mT
        by_logits = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True))
        return by_logits @ y, by_logits.mT @ x, weights.mT @ g


def attention(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return (x @ y.mT).softmax(-1) @ z


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [20, 40])
def test_a_gradient_that_underflows_is_no_error(scale: int, dtype: torch.dtype) -> None:
    """Some are 1e-190 in float64, beside rounding of 1e3."""
    for seed in range(5):
        inputs = [drawn(4, 8, dtype=dtype, seed=3 * seed + k, scale=scale) for k in range(3)]
        assert held_against(Attention.apply, attention, *inputs).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_an_output_may_have_the_dtype_of_an_input_that_is_not_differentiated(dtype: torch.dtype) -> None:
    running = torch.ones(3)

    class Tracked(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
            new = 0.9 * mean + 0.1 * x.mean(0).to(mean.dtype)
            ctx.mark_non_differentiable(new)
            return 2 * x, new

        @staticmethod
        def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, None]:
            return 2 * g, None

    problem = bind(Tracked.apply, [drawn(4, 3, dtype=dtype), running], names=["x", "mean"])
    assert run_check("reference", problem, Settings()).verdict is Verdict.PASS
