"""The polynomial through the point and three steps to either side of it, and how far the forward is from it.

Its slope at the point is what Richardson's two extrapolations of the three central differences come to. Its sixth
difference is what no polynomial of lower degree explains: of a smooth function nothing but noise, else a kink, a jump
or variation within the steps. So samples taken for a derivative say how noisy they are, where they say that they are
quiet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate
from gradverify.core.forward.noise import SAFETY

PLACES = (1.0, 0.5, 0.25, -1.0, -0.5, -0.25)  # of the samples, in units of the largest step
_FINEST = 0.25  # the smallest of them
_DEGREE = len(PLACES)
_SMOOTH = 2.0**-10  # the part of the second coefficient that the last may have, which of something smooth is far less
FARTHEST = 2.0**7  # steps that a point is away from zero, at most
OFF = 16.0  # by so many bounds of its noise a sample may miss its forecast
ROUNDED = 2.0**-53  # of a number, by rounding: of where a sample is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrywiseSamples:
    """Samples of a function whose every output seems to go by the entry of its own number, of one input; n outputs."""

    point: Tensor  # (n,) the input's entries
    step: Tensor  # (n,) the largest step
    samples: Tensor  # (6, n) how far the outputs at `PLACES`, in these units, are from those at the point
    places: Tensor  # (n,) one more place each, at random
    last: Tensor  # (n,) how far the outputs at those are
    at_once: bool  # whether several points went through one call, in which an output might go by its place

    def of(self, outputs: Tensor | slice) -> EntrywiseSamples:
        """Return the samples of some of the outputs."""
        return EntrywiseSamples(
            point=self.point[outputs],
            step=self.step[outputs],
            samples=self.samples[:, outputs],
            places=self.places[outputs],
            last=self.last[outputs],
            at_once=self.at_once,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StencilPolynomial:
    """Polynomials in t = (x - point) / step, one per output (or more, in place of m), without their constant term."""

    coefficients: Tensor  # (6, m) of t, t², … t⁶
    shift: Tensor  # (m,) how far the last extrapolation moved the slope

    @property
    def residue(self) -> Tensor:
        """What the sixth difference leaves, (m,): noise of one standard deviation leaves about 1."""
        return self.coefficients[-1].abs().mul_(_noise_of_last())


def polynomial_through(samples: Tensor) -> StencilPolynomial:
    """Return the polynomials through outputs (m,) at the point and `samples` (6, m), which say how far others are."""
    terms = (_weights().to(samples.device) @ samples.flatten(1)).view(-1, *samples.shape[1:])
    return StencilPolynomial(coefficients=terms[:_DEGREE], shift=terms[_DEGREE].abs_())


def slope_of(series: StencilPolynomial, step: Tensor, noise: Tensor) -> Estimate:
    """Return the slopes at the point where `noise` (m,) bounds that of a sample; `step` is the largest one, (m,)."""
    bar = torch.add(series.shift, noise, alpha=NOISE_FACTOR / _FINEST).div_(step)
    return Estimate(value=series.coefficients[0] / step, bar=bar.nan_to_num_(torch.inf, torch.inf))


def forecast(series: StencilPolynomial, places: Tensor) -> Tensor:
    """Return by how much outputs differ at `places` (m,), between -1 and 1, from those at the point; (m,)."""
    lowest, *others, last = series.coefficients.unbind()
    found = torch.addcmul(others.pop(), last, places)
    for coefficient in (*reversed(others), lowest):
        torch.addcmul(coefficient, found, places, out=found)
    return found.mul_(places)


def missed(eight: EntrywiseSamples, series: StencilPolynomial) -> Tensor:
    """Return how far the last samples are from where the others, their series, foretell them; (n,)."""
    return forecast(series, eight.places).sub_(eight.last).abs_()


def heard(series: StencilPolynomial) -> Tensor:
    """Return a bound on the noise of each output from what its own samples leave, (m,)."""
    return series.residue.mul_(SAFETY)


def bends(series: StencilPolynomial, noise: Tensor) -> Tensor:
    """Tell which outputs bend as no smooth function does, where `noise` bounds that of a sample; bool (m,).

    Of a kink all even coefficients are about as large as each other, of something smooth they fall rapidly.
    """
    second, last = series.coefficients[1].abs(), series.coefficients[-1].abs()
    return last > torch.maximum(second.mul_(_SMOOTH), noise / _noise_of_last())


def reach(series: StencilPolynomial, value: Tensor) -> Tensor:
    """Return how large the samples about are, (m,): noise goes by them, also where the output itself is zero."""
    return series.coefficients[:3].abs().sum(dim=0).add_(value.abs())


@cache
def _weights() -> Tensor:
    """Return the weights of samples, relative to the point, in every coefficient and in the shift; (8, 6).

    The last row is zero: products with eight rows take less time than with seven.
    """
    rows = torch.tensor([_basis(node) for node in PLACES], dtype=torch.float64, device="cpu").T
    finer = torch.tensor([[0.0, -1 / 3, 8 / 3, 0.0, 1 / 3, -8 / 3]], dtype=torch.float64, device="cpu")
    shift = rows[:1] - finer  # `finer` is what the two smaller steps alone come to
    return torch.cat([rows, shift, torch.zeros_like(shift)])


@cache
def _noise_of_last() -> float:
    """Return what turns the last coefficient into a sample's noise: that of independent samples and of the point."""
    last = _weights()[_DEGREE - 1]
    return 1 / math.sqrt(float(last.square().sum() + last.sum().square()))


def _basis(node: float) -> list[float]:
    """Return the coefficients of t … t⁶ of the polynomial that is 1 at the node and 0 at the others and at 0."""
    product = [1.0]
    for other in (0.0, *PLACES):
        if other != node:
            product = [
                ahead - other * here for ahead, here in zip([0.0, *product], [*product, 0.0], strict=True)
            ]  # times (t - other), lowest power first
    scale = math.prod(node - other for other in (0.0, *PLACES) if other != node)
    return [coefficient / scale for coefficient in product[1:]]
