"""At a tie, entries that lie between their one-sided derivatives must also form a subgradient together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.checks.registry import run_check
from gradverify.result import CheckResult, Verdict
from tests.core.support import ALONE, double, gradcheck, problem_of, with_backward, with_scaled_gradient


def tied(*shape: int, seed: int = 0) -> Tensor:
    """Return random integers from 0 to 2, many of them equal."""
    values = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(seed))
    return values.double().requires_grad_()


def messages(result: CheckResult) -> list[str]:
    return [finding.message for finding in result.findings if finding.verdict is Verdict.FAIL]


ALL_OF_THEM = with_backward(torch.amax, lambda g, x: g * (x == x.amax()))
ONE_SIDED = with_backward(lambda x, y: (x - y).relu(), lambda g, x, y: (g * (x >= y), -g * (x > y)))


def test_maximum_with_the_whole_gradient_for_each_of_two_tied_inputs_fails() -> None:
    result = gradcheck(ALL_OF_THEM, double([1.0, 3.0, 3.0]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)
    assert messages(result) == [
        "2 entries of d output / d x lie between their one-sided derivatives, but the row as a whole is the gradient of"
        " no piece nearby: along x[1] + x[2], output changes by 1, backward says 2"
    ]
    (finding,) = result.findings
    assert (finding.code, finding.cause) == ("GV101", None)
    assert [element.input_index for element in finding.elements] == [(1,), (2,)]
    assert [element.numeric for element in finding.elements] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("count", [5, 50])
def test_maximum_with_the_whole_gradient_for_each_of_many_tied_inputs_fails(count: int) -> None:
    result = gradcheck(ALL_OF_THEM, double([1.0] * count))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, count)
    assert messages(result)[0].endswith(
        f"along x[0] + x[1] + x[2] + x[3] + … ({count} inputs), output changes by 1, backward says {count}"
    )


def test_relu_of_a_difference_with_inconsistent_branches_fails() -> None:
    result = gradcheck(ONE_SIDED, double([1.0, 2.0]), double([1.0, 3.0]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)
    assert [finding.wrt for finding in result.findings if finding.verdict is Verdict.FAIL] == ["x", "y"]
    for message in messages(result):
        assert message.endswith("along x[0] + y[0], output[0] changes by 0, backward says 1")


def test_thousands_of_inconsistent_branches_fail() -> None:
    result = gradcheck(ONE_SIDED, double([1.0, 2.0] * 500), double([1.0, 3.0] * 500))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1000)


def test_wrong_rows_in_directions_with_unequal_entries_fail() -> None:
    hinge = with_backward(
        lambda x, w: (x @ w).relu(), lambda g, x, w: (g * w * (x @ w >= 0), g * x * (x @ w > 0).double())
    )
    weighted = with_backward(lambda x, y: (2 * x - y).relu(), lambda g, x, y: (2 * g * (2 * x >= y), -g * (2 * x > y)))
    assert gradcheck(hinge, double([1.0, -1.0, 2.0]), double([3.0, 1.0, -1.0])).verdict is Verdict.FAIL
    assert gradcheck(weighted, double([1.0, 2.0]), double([2.0, 3.0])).verdict is Verdict.FAIL


def test_missing_gradient_is_reported_as_missing() -> None:
    forgets = with_backward(lambda x, y: (x - y).relu(), lambda g, x, y: (g * (x >= y), None))
    result = gradcheck(forgets, double([1.0]), double([1.0]))
    assert {finding.code for finding in result.findings} == {"GV101", "GV102"}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_any_convex_combination_of_tied_gradients_passes(share: float) -> None:
    divided = with_backward(
        torch.maximum,
        lambda g, x, y: (g * ((x > y) + share * (x == y)), g * ((x < y) + (1 - share) * (x == y))),
    )
    result = gradcheck(divided, double([1.0, 2.0]), double([1.0, 3.0]))
    assert (result.verdict, result.kinks) == (Verdict.PASS, 2)


RIGHT: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "amax of 5": (torch.amax, (double([1.0] * 5),)),
    "amax of 50": (torch.amax, (double([1.0] * 50),)),
    "max of 50": (lambda x: x.max(0).values, (double([1.0] * 50),)),
    "rows of amin": (lambda x: x.amin(1), (tied(6, 8),)),
    "medians": (lambda x: x.median(1).values, (tied(4, 5),)),
    "median of 7": (torch.median, (double([1.0] * 7),)),
    "sort": (lambda x: x.sort().values, (tied(30),)),
    "topk": (lambda x: x.topk(3).values, (tied(9),)),
    "maximum": (torch.maximum, (tied(200), tied(200, seed=1))),
    "minimum": (torch.minimum, (tied(20), tied(20, seed=1))),
    "clamp": (lambda x: x.clamp(0, 1), (tied(3000),)),
    "max_pool1d": (lambda x: functional.max_pool1d(x, 3), (tied(2, 3, 12),)),
    "max_pool2d, overlapping": (lambda x: functional.max_pool2d(x, 3, 2, 1), (tied(2, 2, 8, 8),)),
    "cdist": (torch.cdist, (tied(5, 2), tied(6, 2, seed=1))),
    "cdist by sums": (lambda x, y: torch.cdist(x, y, p=1), (tied(5, 2), tied(6, 2, seed=1))),
    "norm at zero": (torch.linalg.vector_norm, (double([0.0] * 4),)),
    "largest of equal sizes": (lambda x: x.norm(float("inf")), (double([1.0, -1.0, 1.0]),)),
    "nuclear norm at zero": (lambda x: torch.linalg.matrix_norm(x, "nuc"), (double([[0.0] * 3] * 3),)),
    "hinge": (lambda x, y: functional.relu(1 - x + y).sum(), (tied(10), tied(10, seed=1))),
    "pairwise hinge": (lambda x: (1 - (x[:, None] - x[None])).relu().sum(), (tied(6),)),
    "margins": (lambda x: functional.multi_margin_loss(x, torch.tensor([0, 1, 2])), (tied(3, 4),)),
    "l1": (functional.l1_loss, (tied(20), tied(20, seed=1))),
    "|x| - |y|": (lambda x, y: x.abs() - y.abs(), (double([0.0] * 3), double([0.0] * 3))),
    "relu of sums": (lambda x, w: (x @ w).relu(), ((tied(4, 3) - 1).detach().requires_grad_(), tied(3, 5, seed=1))),
    "relu of one sum of zeros": (lambda x: x.sum().relu(), (double([0.0] * 6),)),
    "range": (lambda x: x.amax() - x.amin(), (double([1.0] * 5),)),
    "total variation": (lambda x: x.diff().abs().sum(), (tied(12),)),
    "nearest of a cloud": (lambda x, y: torch.cdist(x, y).amin(1).sum(), (tied(5, 2), tied(6, 2, seed=1))),
    "size of a complex number": (torch.abs, (torch.zeros(2, dtype=torch.complex128, requires_grad=True),)),
}


# Torch returns the subgradient zero, which stays right when it is doubled.
ZERO = {"norm at zero", "|x| - |y|", "relu of one sum of zeros", "range", "size of a complex number"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_subgradients_of_torch_functions_pass(name: str) -> None:
    function, inputs = RIGHT[name]
    result = gradcheck(function, *inputs)
    assert (result.verdict, result.kinks > 0) == (Verdict.PASS, True), messages(result)
    doubled = with_scaled_gradient(torch.clone, 2.0)
    wrong = gradcheck(lambda x, *others: function(doubled(x), *others), *inputs)
    assert wrong.verdict is (Verdict.PASS if name in ZERO else Verdict.FAIL)


def test_only_rows_with_two_kinks_take_samples_of_the_pieces_nearby() -> None:
    single = gradcheck(torch.relu, double([0.0] * 20))
    tied = gradcheck(torch.amax, double([0.0] * 20))
    assert (single.kinks, tied.kinks) == (20, 20)
    assert single.evaluations.forward < tied.evaluations.forward


@pytest.mark.parametrize(
    "places", [(14, 15), (11, 19), (0, 1)]
)  # which of the tied inputs it is depends on the torch version
@pytest.mark.parametrize(
    ("claims", "verdict"),
    [((0.7, 0.3), Verdict.PASS), ((0.5, 0.5), Verdict.PASS), ((0.35, 0.15), Verdict.FAIL), ((0.7, 0.6), Verdict.FAIL)],
)
def test_quantile_of_tied_inputs_passes_if_its_claims_sum_to_one(
    places: tuple[int, int], claims: tuple[float, float], verdict: Verdict
) -> None:
    slope = torch.zeros(20, dtype=torch.float64)
    slope[list(places)] = torch.tensor(claims, dtype=torch.float64)
    result = gradcheck(with_backward(lambda x: x.quantile(0.3), lambda g, x: g * slope), double([1.5] * 20))
    assert result.verdict is verdict
    if verdict is Verdict.FAIL:
        assert messages(result)[0].endswith(f"(20 inputs), output changes by 1, backward says {sum(claims):.4g}")


@pytest.mark.parametrize("seed", [1, 4, 24])  # eight points close by show neither of the two inputs
def test_a_direction_that_further_points_refute_is_followed_by_another(seed: int) -> None:
    slope = torch.zeros(20, dtype=torch.float64).index_copy(
        0, torch.tensor([4, 5]), torch.tensor([0.35, 0.15]).double()
    )
    halved = with_backward(lambda x: x.quantile(0.3), lambda g, x: g * slope)
    result = run_check("gradcheck", problem_of(halved, double([1.5] * 20)), replace(ALONE, seed=seed))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)


@pytest.mark.parametrize(("claim", "verdict"), [(1e-11, Verdict.PASS), (0.1, Verdict.FAIL)])
def test_claim_of_rounding_size_passes_at_a_cone_that_rounding_flattens(claim: float, verdict: Verdict) -> None:
    def distance(x: Tensor, y: Tensor) -> Tensor:
        return torch.acosh(1 + 2 * (x - y).square().sum(-1))  # is 0 for points up to 1e-8 apart

    u = double([0.1, 0.2])
    function = with_backward(distance, lambda g, x, y: (torch.full_like(x, claim), torch.full_like(y, 2 * claim)))
    assert gradcheck(function, u, u.detach().clone().requires_grad_()).verdict is verdict
