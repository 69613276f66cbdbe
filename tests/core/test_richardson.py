"""Extrapolation of three differences: bars are valid for bounded noise, and no wider than necessary."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.core.estimate.richardson import extrapolated
from gradverify.core.estimate.samples import NOISE_FACTOR

STEP = 2.0**-7


def differences(slope: float, third: float, fifth: float, noise: Tensor) -> Tensor:
    """Return central differences of a polynomial at h, h/2 and h/4, with `noise` (6, m) in each sample; (1, 3, m)."""
    steps = STEP * 0.5 ** torch.arange(3, dtype=torch.float64).unsqueeze(1)
    exact = slope + third * steps**2 + fifth * steps**4
    return (exact + (noise[:3] - noise[3:]) / (2 * steps)).unsqueeze(0)


@settings(deadline=None)
@given(st.floats(-3, 3), st.floats(-10, 10), st.floats(-10, 10), st.floats(-16, -4), st.integers(0, 1000))
def test_error_is_within_four_bars_for_any_bounded_noise(
    slope: float, third: float, fifth: float, level: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(0, 2, (6, 64), generator=generator).double() * 2 - 1
    found = extrapolated(
        differences(slope, third, fifth, 10**level * signs),
        torch.full((1, 64), NOISE_FACTOR * 10**level / (STEP / 4), dtype=torch.float64),
    )
    # Bounded noise may hide the difference of the larger steps; ten bars decide, four are enough.
    assert bool(((found.value - slope).abs() <= 4 * found.bar + 1e-12).all())


def test_larger_steps_are_used_if_noise_dominates() -> None:
    noise = torch.full((1, 1), 1e-6, dtype=torch.float64)
    straight = extrapolated(differences(1.0, 1.0, 0.0, torch.zeros(6, 1)), noise)
    assert float(straight.bar) <= 0.6e-6
    bent = extrapolated(differences(1.0, 1.0, 1e6, torch.zeros(6, 1)), noise)
    assert float(bent.bar) >= 1e-6


def test_bar_is_infinite_for_nan_and_inf() -> None:
    broken = differences(1.0, 0.0, 0.0, torch.zeros(6, 3))
    broken[0, 0, 0], broken[0, 2, 1] = torch.nan, torch.inf
    found = extrapolated(broken, torch.full((1, 3), 1e-12, dtype=torch.float64))
    assert torch.isinf(found.bar).tolist() == [[True, True, False]]
