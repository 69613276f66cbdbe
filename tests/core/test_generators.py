"""Detection of draws from the global random number generators, and vectors that are drawn once for all cases."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from gradverify.core.model.generators import generators_unused, seed_everywhere

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


_DEVICE_CHANGED_BEFORE_ANY_TENSOR_IS_CACHED = """
import torch
from tests.core.support import double, gradcheck

def changes_the_device(x):
    torch.set_default_device("meta")
    return x.sin()

try:
    gradcheck(changes_the_device, double([0.5, 1.0]))
except NotImplementedError:  # "meta" has no numbers, so that this check cannot end; the next ones have to
    pass
torch.set_default_device("cpu")
print(gradcheck(torch.sin, double([0.5, 1.0])).verdict, gradcheck(torch.cumsum, double([0.1] * 50), 0).verdict)
"""


@pytest.mark.slow
def test_default_device_set_by_a_forward_does_not_affect_the_next_case() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _DEVICE_CHANGED_BEFORE_ANY_TENSOR_IS_CACHED],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stdout.splitlines() == ["pass pass"], run.stderr
