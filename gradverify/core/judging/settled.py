"""Functions that go entry by entry, judged by eight samples each, as far as they leave no doubt.

The samples themselves say how noisy they are (see `series`), which hears more than noise wherever the function is not
smooth on the length of the steps. So nothing is settled here that a closer look would judge otherwise, and what is not
settled gets one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function import sampler
from gradverify.core.function.noise import rounding_of
from gradverify.core.function.portion import portion
from gradverify.core.function.sampler import Sampler
from gradverify.core.judging.bench import allowance_of, floor_of
from gradverify.core.judging.compare import (
    Code,
    Judged,
    hopeless,
    in_doubt,
    judge_smooth,
    relative_tolerance,
    share_of_rounding,
)
from gradverify.core.judging.extremes import Extremes, wider, with_extremes
from gradverify.core.judging.tally import KEPT
from gradverify.core.numeric.moves import Moves
from gradverify.core.numeric.samples import BAR_FACTOR, Estimate
from gradverify.core.numeric.series import forecast, heard, reach, series_through, slope_of

_POOLED = 4096  # outputs whose noise, beside their size, stands for that of all
_ROUNDED = 2.0**-53  # of a number, by rounding: of where a sample is taken
_OFF = 16.0  # by so many bounds of its noise a sample may miss its forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Eight:
    """Samples of a function whose every output seems to go by the input of its own number; n inputs, n outputs."""

    moves: Moves  # one move of all inputs
    step: Tensor  # (n,) the largest step
    samples: Tensor  # (6, n) the outputs at `series.PLACES`, which are in these units
    places: Tensor  # (n,) one more place each, at random
    there: Tensor  # (n,) the outputs at those


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What the samples say."""

    extremes: Extremes  # of the entries that match beyond doubt
    judged: Judged | None  # all of them, (1, n), and those in doubt; None where a Jacobian of as many is not kept
    doubt: Tensor  # (k,) the outputs of the others
    usual: float  # noise of most samples, beside their size
    foretold: bool  # whether all samples are where the others foretell them, those of the outputs in doubt too


def settled(sampled: Sampler, eight: Eight, claimed: Tensor, step: Tensor, settings: Settings) -> Settled:
    """Judge all entries by the samples at hand; `claimed` is (1, n)."""
    usual, largest = _usual_noise(sampled, eight), claimed.abs().nan_to_num_(0.0, 0.0, 0.0).max()
    relative = relative_tolerance(settings.tolerances, sampled.dtypes) + share_of_rounding(sampled.coarse)
    floor = floor_of(sampled, settings)
    extremes, width, doubt, foretold = Extremes(), portion(sampled.value), [], True
    for start in range(0, len(sampled.value), width):
        some = slice(start, start + width)
        own, around = claimed[:, some], sampler.focused(sampled, some)
        seen = _seen(around, eight, some, usual)
        judged = _plainly(own, seen, relative, floor)
        if judged is not None:
            extremes = wider(extremes, _extremes(own, judged))
            continue
        allowance = allowance_of(around, step[some], eight.moves, own, largest, settings)
        judged = judge_smooth(own, seen.slope, allowance, allowance.zero)
        open_ = in_doubt(judged, (seen.off > seen.noise).unsqueeze(0), own.abs(), allowance)
        if bool(open_.any()):
            judged.code.masked_fill_(open_, Code.UNDETERMINED)
            doubt.append(open_[0].nonzero().squeeze(1) + start)
            foretold = foretold and bool((seen.off <= seen.quiet)[open_[0]].all())
        extremes = with_extremes(extremes, own, judged, allowance)
    left = torch.cat(doubt) if doubt else eight.moves.owner[0, :0]
    kept = judged if width >= len(sampled.value) and len(sampled.point) * len(sampled.value) <= KEPT else None
    return Settled(extremes=extremes, judged=kept, doubt=left, usual=usual, foretold=foretold)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the samples of some outputs (k,) show."""

    slope: Estimate  # (1, k)
    off: Tensor  # how far the one at random is from where the others foretell it
    noise: Tensor  # how far it may be, by what these leave unexplained
    quiet: Tensor  # and by the usual noise alone


def _plainly(claimed: Tensor, seen: _Seen, relative: float, floor: float) -> Judged | None:
    """Return the verdicts on entries that agree so well that no more need be asked, None where some do not.

    What is allowed is that of `Allowance`, for an entry that has its row and its column to itself.
    """
    own, error, bar = claimed.abs(), (claimed - seen.slope.value).abs_(), seen.slope.bar
    allowed = (own * relative).add_(bar, alpha=BAR_FACTOR).add_(floor)
    fine = (error <= allowed).logical_and_(seen.off <= seen.noise).logical_and_(hopeless(bar, own).logical_not_())
    if not bool(fine.all()):
        return None
    none = torch.zeros_like(fine)
    return Judged(
        numeric=seen.slope.value,
        bar=bar,
        error=error,
        allowed=allowed,
        code=none.view(torch.int8),  # Code.MATCH
        kinked=none,
        bent=none,
    )


def _extremes(claimed: Tensor, judged: Judged) -> Extremes:
    """Return the extremes of entries of which each matters."""
    limit = (judged.allowed / claimed.abs()).max()
    largest, widest, limits = torch.stack([judged.error.max(), judged.bar.max(), limit]).tolist()
    return Extremes(error=largest, bar=widest, limit=limits, vacuous=False)


def _seen(sampled: Sampler, eight: Eight, some: slice, usual: float) -> _Seen:
    """Return what the samples of some outputs show, where `sampled` looks at those."""
    step, series = eight.step[some], series_through(eight.samples[:, some], sampled.value)
    moved = (series.coefficients[0] * (sampled.point[some] / step)).abs_().mul_(_ROUNDED)  # by rounding the input
    quiet = torch.fmax(reach(series, sampled.value).mul_(usual), rounding_of(sampled))
    noise = torch.fmax(quiet, heard(series)).add_(moved)
    off = (eight.there[some] - sampled.value).sub_(forecast(series, eight.places[some])).abs_()
    found = slope_of(series, step, noise)
    return _Seen(
        slope=Estimate(value=found.value.unsqueeze(0), bar=found.bar.unsqueeze(0)),
        off=off,
        noise=noise.mul_(_OFF),
        quiet=quiet.add_(moved).mul_(_OFF),
    )


def _usual_noise(sampled: Sampler, eight: Eight) -> float:
    """Return what the noise of most samples is beside their size: few sometimes show less than there is."""
    every = max(1, len(sampled.value) // _POOLED)
    value = sampled.value[::every]
    series = series_through(eight.samples[:, ::every], value)
    share = heard(series) / reach(series, value)
    return float(share.nanmedian().nan_to_num(0.0, 0.0))
