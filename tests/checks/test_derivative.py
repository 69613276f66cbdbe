"""How a comparison is put into words, beside what torch says."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify.case import Settings, Tolerances, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.report.numbers import with_bar
from gradverify.result import CheckResult, Verdict
from tests.core.support import claimed, double, problem_of, with_backward
from tests.zoo.small_functions import SafeNorm


def checked(function: Any, *inputs: Any, check: str = "gradcheck", settings: Settings | None = None) -> CheckResult:
    return run_check(check, problem_of(function, *inputs), settings or Settings())


def beside(result: CheckResult) -> tuple[str, str, str]:
    assert result.torch is not None
    return result.verdict.value, result.torch.verdict.value, result.torch.message


def test_agreement_needs_no_reason() -> None:
    assert beside(checked(torch.sin, double([1.0, 2.0]))) == ("pass", "pass", "")


def test_an_error_within_torchs_tolerance_is_said_to_be() -> None:
    wrong = claimed(torch.sin, lambda x: torch.cos(x) * 1.0005)
    reason = "it passes: the error lies within its tolerance of 0.001 relative and 1e-05 absolute"
    assert beside(checked(wrong, double([1.0, 2.0]))) == ("fail", "pass", reason)


def test_at_a_kink_torch_expects_the_mean_of_the_slopes() -> None:
    ours, theirs, reason = beside(checked(torch.relu, double([0.0, 1.0])))
    assert (ours, theirs) == ("pass", "fail")
    assert reason.endswith("; at a kink it expects the mean of the two slopes")


def test_of_an_endless_exception_torchs_line_is_short_too() -> None:
    def endless(x: Tensor) -> Tensor:
        return with_backward(torch.sin, refused)(x)

    def refused(grad: Tensor, x: Tensor) -> Tensor:
        raise ValueError("A" * 5_000_000)

    _, theirs, reason = beside(checked(endless, double([1.0])))
    assert (theirs, reason.startswith("ValueError: AAA"), len(reason) < 1_000) == ("error", True, True)


def test_where_one_step_is_too_coarse_the_bars_say_so() -> None:
    ours, theirs, reason = beside(checked(torch.log, double([1e-5, 1.0])))
    assert (ours, theirs) == ("pass", "fail")
    assert "its one step of 1e-6 is not accurate enough here, or backward does not return the same" in reason


def test_torch_is_skipped_on_large_inputs_and_on_request() -> None:
    result = checked(torch.sin, torch.ones(101, dtype=torch.float64, requires_grad=True))
    assert beside(result)[1:] == (
        "skip",
        "the Jacobian has 10,201 entries, more than 10,000; --torch-gradcheck always runs it",
    )
    never = Settings(torch_gradcheck=TorchGradcheck.NEVER)
    assert beside(checked(torch.sin, double([1.0]), settings=never))[1:] == ("skip", "torch_gradcheck is never")


def test_a_missing_gradient_has_its_own_code() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * ctx.saved_tensors[0], None

    result = checked(Forgets.apply, double([1.0, 2.0]), double([3.0, 4.0]))
    assert [(finding.code, finding.wrt) for finding in result.findings] == [("GV102", "y")]
    assert result.findings[0].message.split("\n")[0] == (
        "backward returns no gradient for y, but output depends on it in 2 entries of d output / d y; if y is a"
        " constant, set `requires_grad: false` on it (in Python, pass it without requires_grad)"
    )


def test_a_missing_gradient_of_the_only_input_is_not_taken_for_a_constant() -> None:
    result = checked(with_backward(torch.sin, lambda grad, x: None), double([1.0, 2.0]))
    assert result.findings[0].code == "GV102"
    assert "constant" not in result.findings[0].message


def test_a_gradient_that_is_not_a_number_has_its_own_code() -> None:
    result = checked(claimed(torch.sin, lambda x: x * torch.nan), double([1.0]))
    assert [finding.code for finding in result.findings] == ["GV103"]


def test_nothing_to_differentiate_is_an_error_of_its_own() -> None:
    result = checked(torch.sin, torch.ones(2))
    assert (result.verdict, result.findings[0].code) == (Verdict.ERROR, "GV907")
    assert checked(lambda x: x > 0, double([1.0])).findings[0].code == "GV907"


def test_a_vacuous_pass_says_so() -> None:
    assert checked(claimed(torch.ones_like, torch.zeros_like), double([1.0, 2.0])).message == (
        "4 entries agree; every derivative is zero"
    )


def test_why_an_entry_stays_open_is_said() -> None:
    root = claimed(torch.sqrt, lambda x: 0.5 / (x.sqrt() + 1e-8))
    open_ = next(found for found in checked(root, double([0.0, 1.0])).findings if found.code == "GV104")
    assert "undetermined: differences find no number, as at an infinite derivative" in open_.message
    stairs = claimed(lambda x: (x / 0.02).round() * 0.02, torch.ones_like)
    open_ = next(found for found in checked(stairs, double([0.313, -1.227, 0.771])).findings if found.code == "GV104")
    assert "undetermined: the output stands still at small steps and may move in stairs" in open_.message


def test_no_number_because_of_rounding_is_not_said_to_be_an_infinite_derivative_only() -> None:
    (open_,) = checked(SafeNorm.apply, double([[0.0, 0.0], [3.0, 4.0]]), check="gradgradcheck").findings
    assert open_.code == "GV204"
    assert not math.isfinite(open_.elements[0].numeric)
    assert "or if rounding on the way hides the slope" in open_.message


def test_an_input_that_nothing_depends_on_is_said_to_be_one() -> None:
    x, w = double([1.0, 2.0]), double([[3.0]])
    assert checked(lambda x, w: x.sin() + 0 * w.sum(), x, w).message == (
        "6 entries agree; every derivative by y is zero"
    )
    assert checked(lambda x, w: x.sin() * w.sum(), x, w).message == "6 entries agree"


def test_tolerances_of_the_users_are_used() -> None:
    wrong = claimed(torch.sin, lambda x: torch.cos(x) * 1.001)
    loose = Settings(tolerances=Tolerances(rtol=1e-2))
    assert checked(wrong, double([1.0]), settings=loose).verdict is Verdict.PASS
    assert checked(wrong, double([1.0]), settings=Settings(tolerances=Tolerances(atol=1e-2))).verdict is Verdict.PASS


def test_a_random_forward_is_seeded_or_not_judged() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand(x.shape, dtype=x.dtype)

    def noisy_elsewhere(x: Tensor) -> Tensor:
        return x * float(np.random.default_rng(np.random.randint(9)).random()) * random.random()

    def seldom(x: Tensor) -> Tensor:
        return x * (1.0 if float(torch.rand(())) < 0.98 else 7.0)

    def stubborn(x: Tensor) -> Tensor:
        stubborn.calls += 1  # type: ignore[attr-defined]
        return x * stubborn.calls  # type: ignore[attr-defined]

    stubborn.calls = 0  # type: ignore[attr-defined]
    for drawing in (noisy, noisy_elsewhere, seldom):
        assert checked(drawing, double([1.0, 2.0])).verdict is Verdict.PASS
    result = checked(stubborn, double([1.0]))
    assert (result.verdict, result.findings[0].code) == (Verdict.INCONCLUSIVE, "GV104")


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck", "contract"])
def test_what_is_not_dense_is_not_judged(check: str) -> None:
    sparse = torch.eye(3, dtype=torch.float64).to_sparse_coo().requires_grad_()
    result = checked(lambda x: x @ torch.ones(3, dtype=torch.float64), sparse, check=check)
    assert result.verdict is (Verdict.SKIP if check == "contract" else Verdict.INCONCLUSIVE)
    assert "x is sparse_coo" in result.message


def test_an_unknown_check_is_a_skip() -> None:
    assert checked(torch.sin, double([1.0]), check="nonsense").verdict is Verdict.SKIP


class Cut(torch.autograd.Function):
    """Return a value, and beside it what no gradient flows through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, beside: Any) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x)
        other = beside(x)
        ctx.mark_non_differentiable(other)
        return x.sin(), other

    @staticmethod
    def backward(ctx: Any, grad: Tensor, unused: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * x.cos(), None


def test_an_output_cut_off_from_its_inputs_is_remarked_on() -> None:
    result = checked(lambda x: Cut.apply(x, torch.exp), double([0.5, -1.0, 2.0]))
    assert (result.verdict, [finding.code for finding in result.findings]) == (Verdict.PASS, ["GV105"])
    assert result.findings[0].of == "output[1]"
    assert "3 entries" in result.findings[0].message
    assert result.message.endswith("no gradient through output[1]")


def test_so_is_one_of_a_forward_that_takes_a_gradient_itself() -> None:
    class Quartic(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(4 * x**3)
            return (x**4).sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (slope,) = ctx.saved_tensors
            return grad * slope  # its own derivative is lost

    def energy_and_force(x: Tensor) -> tuple[Tensor, Tensor]:
        energy = Quartic.apply(x)
        return energy, -torch.autograd.grad(energy, x, create_graph=True)[0]

    result = checked(energy_and_force, double([0.5, -1.0, 2.0]))
    assert [(finding.code, finding.of) for finding in result.findings] == [("GV105", "output[1]")]


@pytest.mark.parametrize("beside", [torch.sign, torch.round, torch.zeros_like, torch.argsort, torch.isnan])
def test_an_output_that_has_no_derivative_is_not_remarked_on(beside: Any) -> None:
    result = checked(lambda x: Cut.apply(x, lambda x: beside(x).to(x.dtype)), double([0.6, -1.2, 2.2]))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_a_forward_that_draws_is_said_to(check: str) -> None:
    settings = Settings(seed=5)
    said = " (the forward draws random numbers; seeded with 24306 before every call)"
    found = checked(lambda x: x * torch.rand_like(x), double([1.0, 2.0]), check=check, settings=settings)
    assert found.verdict is Verdict.PASS
    assert found.message.endswith(said)
    steady = checked(torch.sin, double([1.0, 2.0]), check=check, settings=settings)
    assert "random" not in steady.message
    asked = replace(problem_of(lambda x: x * torch.rand_like(x), double([1.0])), seed=3)  # who says so knows
    assert "random" not in run_check(check, asked, settings).message


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_a_mask_drawn_anew_from_a_usual_seed_is_not_right_by_accident(seed: int) -> None:
    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * (torch.rand(x.shape) < 0.5)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            drawn = torch.rand(grad.shape, generator=torch.Generator().manual_seed(seed))
            return grad * (drawn < 0.5)

    point = torch.linspace(1.0, 2.0, 16, dtype=torch.float64).requires_grad_()
    assert checked(Dropout.apply, point, settings=Settings(seed=seed)).verdict is Verdict.FAIL


def test_one_wrong_entry_differs() -> None:
    one = claimed(torch.sin, lambda x: torch.cos(x) * torch.tensor([1.5, 1.0]))
    assert checked(one, double([1.0, 2.0])).message == "1 of 4 entries differs"


def test_two_numbers_that_differ_late_are_shown_with_the_digits_in_which_they_do() -> None:
    slightly = claimed(lambda x: torch.pi * x, lambda x: torch.full_like(x, 3.14159))
    (finding,) = checked(slightly, double([1.0])).findings
    assert "backward says 3.14159, differences say 3.14159 " not in finding.message
    assert "backward says 3.14159, differences say 3.141593 ±" in finding.message


@pytest.mark.slow
def test_the_sentence_and_the_table_round_an_error_bar_alike() -> None:
    for seed in range(20):
        x = double(np.random.default_rng(seed).normal(size=3).tolist())
        (finding,) = checked(claimed(torch.sin, torch.sin), x).findings
        bar = with_bar(0.0, finding.elements[0].error_bar).partition(" ± ")[2]
        assert finding.message.endswith(f" ± {bar.replace('e-', 'e-0')}" if bar[-2] == "-" else f" ± {bar}")


class SolveLower(torch.autograd.Function):
    """The solution y of a·y = b for the lower triangle of a, with a gradient that is not masked."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        y = torch.linalg.solve_triangular(a, b, upper=False)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, y = ctx.saved_tensors
        by_b = torch.linalg.solve_triangular(a.mT, g, upper=True)
        return -by_b @ y.mT, by_b


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_a_gradient_outside_the_constraint_is_said_not_to_be_judged(check: str) -> None:
    a, b = double([[1.5, 0.0], [0.3, 2.0]]), double([[1.0], [-2.0]])
    bound = bind(SolveLower.apply, (a, b), names=("a", "b"), projections={"a": torch.tril})
    result = run_check(check, bound, Settings())
    assert result.verdict is Verdict.PASS
    assert "; a moves within its constraint only, and its gradient outside is not judged" in result.message


def test_without_a_constraint_the_gradient_is_judged_everywhere() -> None:
    result = checked(SolveLower.apply, double([[1.5, 0.0], [0.3, 2.0]]), double([[1.0], [-2.0]]))
    assert result.verdict is Verdict.FAIL
    assert "constraint" not in result.message
