"""References that jump where a number is rounded otherwise, and operations that round nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import Verdict
from tests.checks.test_reference import drawn, held_against, kernel, unchanged

LOW = (torch.float32, torch.float16, torch.bfloat16)
SEEDS = range(4)


def distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().mean()


def pooled(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 2)


def hinge(x: Tensor, y: Tensor) -> Tensor:
    return (1 - x * y).relu()


def quantised(x: Tensor) -> Tensor:
    """Round to quarters; the gradient passes as if nothing was rounded."""
    scaled = (4 * x).clamp(-8, 7)
    return (scaled + (scaled.round() - scaled).detach()) / 4


def half_more(gradient: Tensor) -> Tensor:
    return 1.5 * gradient


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    ("change", "verdict"), [(unchanged, Verdict.PASS), (half_more, Verdict.FAIL), (lambda g: -10 * g, Verdict.FAIL)]
)
def test_a_tie_hides_no_other_entry(dtype: torch.dtype, change: Callable[[Tensor], Tensor], verdict: Verdict) -> None:
    x, y = (drawn(20, 9, dtype=dtype, seed=seed) for seed in (0, 1))
    with torch.no_grad():
        x[0, 0] = y[0, 0] = 1.0
    assert held_against(kernel(distance, backward=change), distance, x, y).verdict is verdict


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("plain", "shapes"),
    [(distance, [(20, 9), (20, 9)]), (pooled, [(2, 3, 32, 32)]), (hinge, [(100,), (100,)]), (quantised, [(16, 33)])],
)
def test_numbers_that_bfloat16_makes_equal_hide_no_wrong_gradient(
    plain: Callable[..., Tensor], shapes: list[tuple[int, ...]], seed: int
) -> None:
    inputs = [drawn(*shape, dtype=torch.bfloat16, seed=10 * seed + place) for place, shape in enumerate(shapes)]
    assert held_against(kernel(plain), plain, *inputs).verdict is Verdict.PASS
    assert held_against(kernel(plain, backward=half_more), plain, *inputs).verdict is Verdict.FAIL
    assert held_against(kernel(plain, backward=torch.zeros_like), plain, *inputs).verdict is Verdict.FAIL


def test_an_output_on_the_edges_of_stairs_hides_no_factor() -> None:
    for seed in SEEDS:
        x = drawn(16, 33, dtype=torch.bfloat16, seed=seed)
        assert held_against(kernel(quantised, forward=half_more), quantised, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW[1:])
def test_rounding_that_cancels_is_not_measured_by_a_single_sample(dtype: torch.dtype) -> None:
    """The gradient by the largest entry is a sum over the row that is zero but for rounding."""
    plain = softmax_by_largest(lambda x: torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True))
    for seed in (15, 16):  # in float16, a single sample of the noise is too little for either
        assert held_against(kernel(plain), plain, drawn(6, 17, dtype=dtype, seed=seed)).verdict is Verdict.PASS


def softmax_by_largest(largest: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def softmax(x: Tensor) -> Tensor:
        raised = (x - largest(x)).exp()
        return raised / raised.sum(-1, keepdim=True)

    return softmax


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    "largest",
    [
        lambda x: x.amax(-1, keepdim=True),
        lambda x: (1.3 * x).amax(-1, keepdim=True),
        lambda x: x.max(),
        lambda x: torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True),
    ],
)
def test_the_largest_entry_is_not_rounded(dtype: torch.dtype, largest: Callable[[Tensor], Tensor]) -> None:
    plain = softmax_by_largest(largest)
    x = drawn(6, 17, dtype=dtype)
    assert held_against(kernel(plain), plain, x).verdict is Verdict.PASS
    assert held_against(kernel(plain, backward=half_more), plain, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("far", [-1e4, -1e9])
def test_a_mask_of_exact_numbers_is_not_rounded(dtype: torch.dtype, far: float) -> None:
    kept = torch.rand(6, 17, generator=torch.Generator().manual_seed(0)) > 0.3

    def masked(x: Tensor) -> Tensor:
        return (x + (1.0 - kept.to(x.dtype)) * far).softmax(-1)

    def as_kernel(x: Tensor) -> Tensor:
        return x.masked_fill(~kept, -torch.inf).softmax(-1)

    x = drawn(6, 17, dtype=dtype)
    assert held_against(kernel(as_kernel), masked, x).verdict is Verdict.PASS
    assert held_against(kernel(as_kernel, half_more, half_more), masked, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
def test_exponents_that_are_counted_are_exact(dtype: torch.dtype) -> None:
    def powers(x: Tensor) -> Tensor:
        return x[:, None] ** torch.arange(4, dtype=x.dtype)

    x = drawn(9, dtype=dtype)
    assert held_against(kernel(powers), powers, x).verdict is Verdict.PASS
    assert held_against(kernel(powers, backward=half_more), powers, x).verdict is Verdict.FAIL


def looked_up(index: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the linear interpolation in a table whose cells are found by `index`."""

    def interpolated(x: Tensor, table: Tensor) -> Tensor:
        place = 8 * x.sigmoid()
        cell = index(place)
        share, cell = place - cell, cell.long()
        return (1 - share) * table[cell] + share * table[cell + 1]

    return interpolated


def cut(place: Tensor) -> Tensor:
    return place.detach().trunc()


def divided(place: Tensor) -> Tensor:
    return torch.div(place.detach(), 1.0, rounding_mode="floor")


def from_above(place: Tensor) -> Tensor:
    return place.ceil() - 1.0


def kept_inside(place: Tensor) -> Tensor:
    return place.floor().clamp(0, 7)


def counted(place: Tensor) -> Tensor:
    return (place.detach()[:, None] > torch.arange(1, 8, dtype=place.dtype)).to(place.dtype).sum(-1)


@pytest.mark.parametrize("index", [torch.floor, cut, divided, from_above, kept_inside, counted])
def test_a_whole_number_that_is_an_index_is_not_rounded(index: Callable[[Tensor], Tensor]) -> None:
    plain, x, table = looked_up(index), drawn(12), drawn(9, seed=10)
    assert held_against(kernel(plain), plain, x, table).verdict is Verdict.PASS
    result = held_against(kernel(plain, backward=half_more), plain, x, table)
    assert [finding.wrt for finding in result.findings if finding.verdict is Verdict.FAIL] == ["x", "y"]
    assert sum(finding.total for finding in result.findings) > 12  # of 21, some of which are zero


@pytest.mark.parametrize("index", [torch.floor, cut, divided])
def test_an_index_that_rounding_changes_is_a_jump(index: Callable[[Tensor], Tensor]) -> None:
    """Half of the places are on the edge of two cells, where other arithmetic may find either."""

    def steps(x: Tensor, table: Tensor) -> Tensor:
        return table[index(x * 10).long()]

    def other_steps(x: Tensor, table: Tensor) -> Tensor:
        return table[index(x / 0.1 * (1 - 1e-6)).long()]

    x, table = torch.tensor([0.3, 0.25, 0.7, 0.95]), drawn(12)
    assert not torch.equal(steps(x, table), other_steps(x, table))
    assert held_against(kernel(other_steps), steps, x.requires_grad_(), table).verdict is not Verdict.FAIL


GROUPS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])


def by_scatter(kind: str) -> Callable[[Tensor], Tensor]:
    def reduced(x: Tensor) -> Tensor:
        return x.new_zeros(4, 2).scatter_reduce(0, GROUPS[:, None].expand_as(x), x, kind, include_self=False)

    return reduced


def by_segments(x: Tensor) -> Tensor:
    return torch.segment_reduce(x, "max", lengths=torch.tensor([3, 3, 2]), axis=0)


def by_equal_entries(x: Tensor) -> Tensor:
    return x * (x.float() == x.float().amax(0)).to(x.dtype)


@pytest.mark.parametrize(
    "plain",
    [
        by_scatter("amax"),
        by_scatter("amin"),
        by_segments,
        by_equal_entries,
        lambda x: torch.stack(x.aminmax()),
        lambda x: torch.fmax(x[:4], x[4:]),
        lambda x: x.cummax(0).values,
        lambda x: x.kthvalue(3, 0).values,
        lambda x: x.median(0).values,
        lambda x: x.topk(3, 0).values,
        lambda x: functional.max_pool1d(x.mT, 2),
        lambda x: torch.cdist(x[:4], x[4:], torch.inf),
    ],
)
def test_an_entry_that_was_chosen_is_not_rounded(plain: Callable[[Tensor], Tensor]) -> None:
    x = drawn(8, 2)
    assert held_against(kernel(plain), plain, x).verdict is Verdict.PASS
    assert held_against(kernel(plain, backward=half_more), plain, x).verdict is Verdict.FAIL
