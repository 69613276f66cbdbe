"""Tiles of the Jacobian with only plain entries are judged as a whole, with the same verdicts as one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.core.decide import first_look
from gradverify.core.decide.comparison import DenseEntries, dense_entries
from gradverify.core.decide.context import unchanged
from gradverify.core.decide.tiles import Tile, narrowed, plain_entries
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.stencil_polynomial import PLACES, bends_sharply, polynomial_through
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.jacobians import investigate
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import ALONE, claimed, gradcheck, problem_of


def drawn(*shape: int) -> Tensor:
    """Return normal random numbers that require grad."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()


def judged_entries(function: Callable[[Tensor], Tensor], x: Tensor) -> DenseEntries:
    """Return all entries of the Jacobian with their verdicts."""
    problem = problem_of(function, x)
    ready = made_repeatable(problem, record(problem), 0)
    assert ready is not None
    found = dense_entries(investigate(ready, ALONE, unchanged).comparison, x.numel(), function(x).numel())
    assert found is not None
    return found


def judged_tiles(function: Callable[[Tensor], Tensor], x: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tile]:
    """Return the tiles that `plain_entries` is called with while the function is judged."""
    found: list[Tile] = []

    def recorded(tile: Tile) -> tuple[Judged, Tensor]:
        found.append(tile)
        return plain_entries(tile)

    monkeypatch.setattr(first_look, "plain_entries", recorded)
    gradcheck(function, x)
    return found


SMOOTH = [
    lambda x: x.softmax(-1),
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    lambda x: x.sin().cumsum(-1),
    lambda x: x.exp().logsumexp(0),
]


@pytest.mark.parametrize("function", SMOOTH)
def test_tiles_get_the_same_verdicts_as_single_entries(
    function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = drawn(8, 16)
    one = judged_entries(function, x)
    monkeypatch.setattr(first_look, "_at_a_glance", lambda tile: first_look._judged(tile, first_look._by_richardson))
    other = judged_entries(function, x)
    assert torch.equal(one.code, other.code)
    torch.testing.assert_close(one.numeric, other.numeric, rtol=1e-9, atol=1e-11)


def test_tiles_of_a_smooth_function_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = judged_tiles(SMOOTH[0], drawn(128, 32), monkeypatch)
    assert len(tiles) >= 4
    assert all(bool(plain_entries(tile)[1].all()) for tile in tiles)


def test_part_of_a_tile_has_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    (tile,) = judged_tiles(SMOOTH[0], drawn(5, 8), monkeypatch)
    rows, outputs = torch.tensor([1, 6]), torch.tensor([0, 7, 39])
    part, whole = narrowed(tile, rows, outputs), tile.samples
    assert torch.equal(part.claimed, tile.claimed[rows][:, outputs])
    assert torch.equal(part.samples.plus, whole.plus[rows][:, :, outputs])
    assert torch.equal(part.samples.back, whole.back[rows][:, :, outputs])
    assert torch.equal(part.samples.chosen, whole.chosen[rows])
    assert torch.equal(part.allowance.row_column_size, tile.allowance.row_column_size[rows][:, outputs])


def test_mean_slope_claimed_at_a_kink_is_not_plain() -> None:
    x = drawn(8, 16).detach()
    x[2, 5] = 0.0
    result = gradcheck(lambda x: x.abs().cumsum(-1), x.requires_grad_())
    assert (result.verdict, result.kinks) == (Verdict.PASS, 11)


@pytest.mark.parametrize("error", [1e-6, -1e-4, 1.0])
@pytest.mark.parametrize("place", [0, 77, 127])
def test_one_wrong_entry_in_a_tile_fails(error: float, place: int) -> None:
    x = drawn(8, 16)

    def slope(x: Tensor) -> Tensor:
        return x.cos() * (1 + error * (torch.arange(128) == place).view(8, 16))

    result = gradcheck(lambda x: claimed(torch.sin, slope)(x).cumsum(-1), x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 16 - place % 16)


@pytest.mark.parametrize(
    ("function", "bent"),
    [
        (torch.sin, False),
        (torch.exp, False),
        (torch.abs, True),
        (lambda t: (t - 0.3).relu(), True),
        (lambda t: t + 1e-6 * t.abs(), True),
        (lambda t: 3 * t, False),
    ],
)
def test_kink_bends_and_smooth_function_does_not(function: Callable[[Tensor], Tensor], bent: bool) -> None:
    step = 2.0**-7
    places = torch.tensor([0.0, *PLACES], dtype=torch.float64).unsqueeze(1) * (step if not bent else 1.0)
    values = function(places)
    found = bends_sharply(polynomial_through(values[1:] - values[0]), torch.full((1,), 1e-15, dtype=torch.float64))
    assert found.tolist() == [bent]
