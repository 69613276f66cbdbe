"""Detection of draws from the global random number generators, and cached random vectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from gradverify.core.forward import noise
from gradverify.core.model.generators import _cached_signed_uniform, generators_unused, seed_everywhere

_SEEDS = (0, 7, 2**40 + 1)
_DRAWS: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.randn(3),
    "torch, one of float32": lambda: torch.rand(()),
    "torch, in place": lambda: torch.empty(2).bernoulli_(),
    "python": lambda: random.gauss(0, 1),
    "python's choice": lambda: random.choice("ab"),
    "numpy": lambda: np.random.randn(2),
    "numpy's integers": lambda: np.random.randint(9),
}


@pytest.fixture(autouse=True)
def _restore_generators() -> Iterator[None]:
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


@pytest.mark.parametrize("seed", _SEEDS)
def test_unused_generators_are_untouched(seed: int) -> None:
    for _ in range(2):
        seed_everywhere(seed)
        torch.randn(3, generator=torch.Generator().manual_seed(1))  # a separate generator
        assert generators_unused(seed)


@pytest.mark.parametrize("draw", _DRAWS.values(), ids=_DRAWS)
def test_a_draw_is_detected(draw: Callable[[], object]) -> None:
    for seed in _SEEDS:
        seed_everywhere(seed)
        draw()
        assert not generators_unused(seed)


def test_reseeding_is_detected() -> None:
    seed_everywhere(0)
    torch.manual_seed(1)
    assert not generators_unused(0)


def test_cached_tensors_ignore_the_default_device() -> None:
    cached = (_cached_signed_uniform, noise._weights, noise._means)
    for each in cached:
        each.cache_clear()
    torch.set_default_device("meta")  # a forward may do this, and other cases must not be affected
    try:
        made_under_meta = [_cached_signed_uniform(5, 3), noise._weights(), noise._means()]
    finally:
        torch.set_default_device(None)
        for each in cached:
            each.cache_clear()
    for found, expected in zip(
        made_under_meta, [_cached_signed_uniform(5, 3), noise._weights(), noise._means()], strict=True
    ):
        assert found.device.type == "cpu"
        assert torch.equal(found, expected)
