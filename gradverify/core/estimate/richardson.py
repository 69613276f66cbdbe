"""Derivatives from three central differences, each step half the previous one, extrapolated twice (Richardson).

Where the steps are exact, the derivative is the slope of the polynomial through the point and the six samples. Its
sixth difference vanishes for polynomials of lower degree: for a smooth function it is noise, otherwise it shows a kink,
a jump or variation within the steps. The samples taken for a derivative thus also bound their own noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from numpy.polynomial.polynomial import polyfromroots
from torch import Tensor

from gradverify.core.estimate.samples import NOISE_FACTOR, Estimate, Steps
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import LengthScales, weighted_sums
from gradverify.core.tuning import CLEARLY_ABOVE

DEPTH = 3  # number of steps
FIRST = 2.0**-7  # largest step, relative to the length scale
_CLOSER = 2.0**-15  # largest closer step, relative to the length: rounding then contributes about 1e-10 of f/x
_MIDDLE = 2.0**-6  # relative to the coordinate itself, so that no step reaches zero
PLACES = (1.0, 0.5, 0.25, -1.0, -0.5, -0.25)  # of the samples, in units of the largest step
_SMOOTH = 2.0**-10  # largest last coefficient of a smooth function, relative to the second; most have a far smaller one
LARGEST_DEVIATION = 16.0  # times its noise bound: largest deviation of a sample from the polynomial


def steps(lengths: LengthScales) -> Steps:
    """Return the steps of the first look, each half the previous one."""
    return _halving(lengths.step * FIRST)


def closer_steps(lengths: LengthScales) -> Steps:
    """Return steps for functions that vary too quickly for `steps`: short even beside each coordinate's own length."""
    return _halving(lengths.nonzero * _CLOSER)


def middle_steps(lengths: LengthScales) -> Steps:
    """Return steps between `steps` and `closer_steps`, for functions whose rounding dominates the closer ones."""
    return _halving(torch.minimum(lengths.step * (FIRST / 16), lengths.nonzero * _MIDDLE))


def _halving(largest: Tensor) -> Steps:
    return Steps(base=largest, factors=0.5 ** torch.arange(DEPTH, dtype=torch.float64, device=largest.device))


def extrapolated(difference: Tensor, noise: Tensor) -> Estimate:
    """Return the limit of the differences (C, 3, m) with its error bar: the last extrapolation's change, plus noise.

    If the two larger steps alone give a smaller bar, their extrapolation is returned: it contains half the noise. The
    bar is infinite where a difference is not finite.
    """
    once = torch.lerp(difference[:, :-1], difference[:, 1:], 4 / 3)
    larger, smaller = once.unbind(dim=1)
    value, change = torch.lerp(larger, smaller, 16 / 15), (larger - smaller).abs_()
    bar, coarse = torch.add(noise, change, alpha=1 / 15), change.add_(noise, alpha=0.5)
    value = torch.where(coarse < bar, larger, value)
    return Estimate(value=value, bar=torch.minimum(bar, coarse).nan_to_num_(torch.inf, torch.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class StencilPolynomial:
    """Polynomials in t = (x - point) / step without constant term, one per output.

    The dimension m may stand for several.
    """

    coefficients: Tensor  # (6, m) of t, t², … t⁶
    shift: Tensor  # (m,) change of the slope, in units of the step, by the last extrapolation

    @property
    def residue(self) -> Tensor:
        """Noise estimate from the sixth difference, (m,): about 1 for noise of standard deviation 1."""
        return self.coefficients[-1].abs().mul_(_noise_of_last())


def polynomial_through(samples: Tensor) -> StencilPolynomial:
    """Return the polynomials through the samples (6, m), which are relative to the outputs at the point."""
    terms = weighted_sums(_weights(), samples.flatten(1)).view(len(_weights()), *samples.shape[1:])
    return StencilPolynomial(coefficients=terms[:-2], shift=terms[-2])


def error_of_samples(series: StencilPolynomial, level: Tensor, relative_level: Tensor) -> Tensor:
    """Return a bound on the error of the samples, (m,): noise of the outputs, and rounding of the positions.

    `level` is the noise at the point and `relative_level` that per unit of an output's size, since samples may be
    larger than the output at the point.
    """
    first, second = series.coefficients[:2].abs()
    noise = torch.addcmul(level, first + second, relative_level)
    # A coordinate is at most step / FIRST, and is rounded to half an eps of it.
    return noise.add_(first, alpha=torch.finfo(torch.float64).eps / 2 / FIRST)


def slope_of(series: StencilPolynomial, step: Tensor, error: Tensor) -> Estimate:
    """Return the slopes at the point; `error` (m,) bounds the error of a sample, `step` (m,) is the largest step.

    As in `richardson.extrapolated`, the two larger steps alone give the slope if their bar is smaller.
    """
    change = series.shift.abs()
    bar = torch.add(change, error, alpha=NOISE_FACTOR / PLACES[DEPTH - 1])
    coarse = change.mul_(15.0).add_(error, alpha=NOISE_FACTOR / PLACES[DEPTH - 2])
    is_coarse = (coarse < bar).to(step.dtype)  # multiplied, since torch.where takes three times as long
    slope = torch.addcmul(series.coefficients[0], series.shift, is_coarse, value=-16.0).div_(step)
    return Estimate(value=slope, bar=torch.minimum(bar, coarse).div_(step).nan_to_num_(torch.inf, torch.inf))


def forecast(series: StencilPolynomial, places: Tensor) -> Tensor:
    """Return the predicted change of the outputs from the point to `places` (m,) in [-1, 1]; (m,)."""
    lowest, *others, last = series.coefficients.unbind()
    value = torch.addcmul(others.pop(), last, places)
    for coefficient in (*reversed(others), lowest):
        torch.addcmul(coefficient, value, places, out=value)
    return value.mul_(places)


def bends_sharply(sampled: Sampler, series: StencilPolynomial, error: Tensor) -> Tensor:
    """Mask of outputs that bend as no smooth function does; (m,). `error` bounds the error of a sample.

    At a kink all even coefficients are of similar magnitude; for a smooth function they decrease rapidly.
    """
    second, last = series.coefficients[1].abs(), series.coefficients[-1].abs()
    floor = torch.maximum(error, CLEARLY_ABOVE * sampled.unit * sampled.size).div_(_noise_of_last())
    return last > torch.maximum(second.mul_(_SMOOTH), floor, out=floor)


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
    last = _weights()[len(PLACES) - 1]
    return 1 / math.sqrt(float(last.square().sum() + last.sum().square()))


def _basis(node: float) -> list[float]:
    """Return the coefficients of t … t⁶ of the polynomial that is 1 at `node` and 0 at the other nodes and at 0."""
    others = [other for other in (0.0, *PLACES) if other != node]
    found: list[float] = (polyfromroots(others)[1:] / math.prod(node - other for other in others)).tolist()
    return found
