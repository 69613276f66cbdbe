"""Eight samples of many outputs against what backward claims, by the worst of them all.

What is plain in the worst entry is so in every one. So most functions that go entry by entry are through at a glance,
and only where something sticks out is every entry asked for its own verdict (see `settled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.judging.compare import Judged, all_matching
from gradverify.core.judging.doubt import DOUBT
from gradverify.core.judging.extremes import Extremes
from gradverify.core.numeric.samples import BAR_FACTOR, Estimate
from gradverify.core.numeric.series import FARTHEST, OFF, ROUNDED, Eight, Series, missed, series_through, slope_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What was seen of some outputs, each (k,)."""

    slope: Estimate
    error: Tensor  # of the claims


def glances(
    eight: Eight, value: Tensor, claimed: Tensor, parts: Sequence[slice], usual: float, known: Series | None
) -> tuple[Glance, list[list[float]]]:
    """Look at outputs part by part: the last look, and of each the largest of five.

    Those are the bar; the error; each of them beside the claim; and what the forecast misses beside the noise. `usual`
    is noise beside the size of `value` (n,), and `known` the series of all, where they are at hand.
    """
    worst = []
    for some in parts:
        seen, middle, mine = eight.of(some), value[some], claimed[some]
        own, series = mine.abs(), known or series_through(seen.samples)
        noise = middle.abs().mul_(usual).addcmul_(seen.step, own, value=FARTHEST * ROUNDED)  # by rounding the input
        slope = slope_of(series, seen.step, noise)
        error = (mine - slope.value).abs_()
        off = missed(seen, series).div_(noise)
        worst += [each.amax() for each in (slope.bar, error, slope.bar / own, error / own, off)]
    return Glance(slope=slope, error=error), torch.stack(worst).view(len(parts), -1).tolist()


def is_plain(worst: Sequence[float], relative: float) -> bool:
    """Tell whether all entries agree, so that nobody could see more by looking closer; `relative` error is allowed."""
    _, _, bar, error, off = worst
    return BAR_FACTOR * bar <= DOUBT and error <= relative and off <= OFF


def extremes_of(worst: Sequence[float], relative: float) -> Extremes:
    """Return the extremes of entries that all agree, and of which each matters."""
    return Extremes(error=worst[1], bar=worst[0], limit=relative + BAR_FACTOR * worst[2], vacuous=False)


def matches(seen: Glance, claimed: Tensor, relative: float) -> Judged:
    """Return the verdicts (1, k) on entries that all agree with what is claimed, (k,)."""
    estimate = Estimate(value=seen.slope.value.unsqueeze(0), bar=seen.slope.bar.unsqueeze(0))
    return all_matching(estimate, seen.error.unsqueeze(0), claimed.abs().mul_(relative).unsqueeze(0))
