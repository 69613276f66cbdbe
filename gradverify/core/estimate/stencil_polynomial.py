"""The polynomial through the point and three steps to either side of it, and the deviation of the forward from it.

Its slope at the point equals the twice extrapolated (Richardson) central difference. Its sixth difference vanishes for
polynomials of lower degree: for a smooth function it is noise, otherwise it shows a kink, a jump or variation within
the steps. The samples taken for a derivative thus also bound their own noise.
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
_FINEST = 0.25  # the smallest step, in these units
_DEGREE = len(PLACES)
_SMOOTH = 2.0**-10  # largest last coefficient of a smooth function, relative to the second; most have a far smaller one
LARGEST_STEPS_FROM_ZERO = 2.0**7  # largest distance of a point from zero, in steps
LARGEST_DEVIATION = 16.0  # times its noise bound: largest deviation of a sample from the polynomial
POSITION_ROUNDING = 2.0**-53  # relative rounding error of the place where a sample is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrywiseSamples:
    """Samples of a function of one input whose output i seems to depend only on entry i; n outputs."""

    point: Tensor  # (n,) the input's entries
    step: Tensor  # (n,) the largest step of each entry
    samples: Tensor  # (6, n) outputs at `PLACES` (in steps) relative to those at the point
    places: Tensor  # (n,) the place of one more sample per entry, random, in steps
    last: Tensor  # (n,) outputs there, relative to those at the point
    at_once: bool  # True if several points went through one call, where an output might depend on its row

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
    """Polynomials in t = (x - point) / step without constant term, one per output.

    The dimension m may stand for several.
    """

    coefficients: Tensor  # (6, m) of t, t², … t⁶
    shift: Tensor  # (m,) change of the slope by the last extrapolation

    @property
    def residue(self) -> Tensor:
        """Noise estimate from the sixth difference, (m,): about 1 for noise of standard deviation 1."""
        return self.coefficients[-1].abs().mul_(_noise_of_last())


def polynomial_through(samples: Tensor) -> StencilPolynomial:
    """Return the polynomials through the samples (6, m), which are relative to the outputs at the point."""
    terms = (_weights().to(samples.device) @ samples.flatten(1)).view(-1, *samples.shape[1:])
    return StencilPolynomial(coefficients=terms[:_DEGREE], shift=terms[_DEGREE].abs_())


def slope_of(series: StencilPolynomial, step: Tensor, noise: Tensor) -> Estimate:
    """Return the slopes at the point; `noise` (m,) bounds the noise of a sample, `step` (m,) is the largest step."""
    bar = torch.add(series.shift, noise, alpha=NOISE_FACTOR / _FINEST).div_(step)
    return Estimate(value=series.coefficients[0] / step, bar=bar.nan_to_num_(torch.inf, torch.inf))


def forecast(series: StencilPolynomial, places: Tensor) -> Tensor:
    """Return the predicted change of the outputs from the point to `places` (m,) in [-1, 1]; (m,)."""
    lowest, *others, last = series.coefficients.unbind()
    value = torch.addcmul(others.pop(), last, places)
    for coefficient in (*reversed(others), lowest):
        torch.addcmul(coefficient, value, places, out=value)
    return value.mul_(places)


def forecast_error(eight: EntrywiseSamples, series: StencilPolynomial) -> Tensor:
    """Return the error of the polynomials in predicting the last samples; (n,)."""
    return forecast(series, eight.places).sub_(eight.last).abs_()


def noise_bound(series: StencilPolynomial) -> Tensor:
    """Return a bound on the noise of each output, from its own samples; (m,)."""
    return series.residue.mul_(SAFETY)


def bends_sharply(series: StencilPolynomial, noise: Tensor) -> Tensor:
    """Mask of outputs that bend as no smooth function does; (m,). `noise` bounds the noise of a sample.

    At a kink all even coefficients are of similar magnitude; for a smooth function they decrease rapidly.
    """
    second, last = series.coefficients[1].abs(), series.coefficients[-1].abs()
    return last > torch.maximum(second.mul_(_SMOOTH), noise / _noise_of_last())


def local_magnitude(series: StencilPolynomial, value: Tensor) -> Tensor:
    """Return the magnitude of the outputs around the point, (m,).

    Noise scales with it, also where the output at the point is zero.
    """
    return series.coefficients[:3].abs().sum(dim=0).add_(value.abs())


@cache
def _weights() -> Tensor:
    """Return the weights of the samples, relative to the point, in each coefficient and in the shift; (8, 6).

    The last row is zero: products with eight rows are faster than with seven.
    """
    rows = torch.tensor([_basis(node) for node in PLACES], dtype=torch.float64, device="cpu").T
    finer = torch.tensor([[0.0, -1 / 3, 8 / 3, 0.0, 1 / 3, -8 / 3]], dtype=torch.float64, device="cpu")
    shift = rows[:1] - finer  # `finer` extrapolates from the two smaller steps alone
    return torch.cat([rows, shift, torch.zeros_like(shift)])


@cache
def _noise_of_last() -> float:
    """Return the factor that turns the last coefficient into the noise of a sample.

    The noise of the samples and of the value at the point is independent.
    """
    last = _weights()[_DEGREE - 1]
    return 1 / math.sqrt(float(last.square().sum() + last.sum().square()))


def _basis(node: float) -> list[float]:
    """Return the coefficients of t … t⁶ of the polynomial that is 1 at `node` and 0 at the other nodes and at 0."""
    product = [1.0]
    for other in (0.0, *PLACES):
        if other != node:
            product = [
                lower - other * same for lower, same in zip([0.0, *product], [*product, 0.0], strict=True)
            ]  # times (t - other), lowest power first
    scale = math.prod(node - other for other in (0.0, *PLACES) if other != node)
    return [coefficient / scale for coefficient in product[1:]]
