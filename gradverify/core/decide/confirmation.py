"""Clear mismatches of one size: the ladder judges a sample of them, and smaller steps confirm the others."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.screen import Screened, screen
from gradverify.core.decide.verdict import Code, Judged, span
from gradverify.core.estimate import richardson
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.estimate.stencil import sample_stencil
from gradverify.core.model.magnitudes import any_set

_COLUMN_GROUPS = 64  # column groups per size class that the ladder judges; half of the rest at a time
_ENTRIES = 1024  # clear mismatches that the ladder judges at a time
_CLEAR = 2.0  # times the allowed error: a larger one is clear
_SIZES = (1e-8, 1e-6, 1e-4, 1e-2)  # error relative to the largest entry: bounds of the size classes
_SAME = 0.25  # of the error: largest change of the numeric entry at smaller steps


class SizeClass:
    """State of one size class of mismatches: how many the ladder has judged, and whether it confirmed them."""

    def __init__(self) -> None:
        self._groups_left = _COLUMN_GROUPS
        self._refuted = False

    def sample(self, accused: Tensor) -> Tensor:
        """Return the mask of the mismatches (C, m) for the ladder to judge: the same outputs of some column groups."""
        rows = _random_subset(accused.any(dim=1).nonzero().squeeze(1), max(1, self._groups_left // 2))
        outputs = _random_subset(accused[rows].any(dim=0).nonzero().squeeze(1), _ENTRIES // max(1, len(rows)))
        sampled, place = torch.zeros_like(accused), (rows.unsqueeze(1), outputs)
        sampled[place] = accused[place]
        return sampled

    def record(self, sampled: Tensor, judged: Judged) -> None:
        """Record the verdicts of the ladder on mismatches (C, m)."""
        self._groups_left -= int(sampled.any(dim=1).sum())
        self._refuted |= any_set(judged.code[sampled] != Code.MISMATCH)

    def all_confirmed(self) -> bool:
        """True if the ladder has confirmed all mismatches so far."""
        return not self._refuted


class ConfirmationState:
    """State of all size classes of mismatches, see `clear_mismatches`."""

    def __init__(self) -> None:
        self.size_classes = tuple(SizeClass() for _ in range(len(_SIZES) + 1))


def clear_mismatches(context: JudgingContext, first: Screened) -> list[Tensor]:
    """Return the masks of clear mismatches where the function does not bend, one mask (C, m) per size class.

    The classes keep errors that the ladder would excuse, due to rounding inside or a slight kink, apart from the larger
    errors of a wrong formula.
    """
    judged = first.judged
    clear = (judged.code == Code.MISMATCH) & (judged.error > _CLEAR * judged.allowed) & ~first.bends
    size = judged.error / context.allowance.largest
    size_class = torch.bucketize(size, torch.tensor(_SIZES, dtype=size.dtype, device=size.device))
    return [clear & (size_class == number) for number in range(len(_SIZES) + 1)]


def confirmed_by_smaller_steps(context: JudgingContext, chosen: Tensor, first: Screened, accused: Tensor) -> Tensor:
    """Mask of the mismatches (C, m) whose numeric entry is the same at smaller steps."""
    if not any_set(accused):
        return accused
    rows, outputs = span(accused)
    selected, place = focused(context, outputs), (rows.unsqueeze(1), outputs.unsqueeze(0))
    closer = richardson.closer_steps(context.lengths)
    again = screen(selected, sample_stencil(selected.sampled, selected.column_groups, chosen[rows], closer))
    change = (again.judged.numeric - first.judged.numeric[place]).abs()
    same = change <= BAR_FACTOR * (again.judged.bar + first.judged.bar[place])
    same &= change <= _SAME * first.judged.error[place]
    confirmed = torch.zeros_like(accused)
    confirmed[place] = accused[place] & same & ~again.bends
    return confirmed


def _random_subset(indices: Tensor, limit: int) -> Tensor:
    """Return `limit` random ones of the indices, in order; all if there are no more. Errors may be periodic."""
    if len(indices) <= limit:
        return indices
    drawn = torch.randperm(len(indices), generator=torch.Generator().manual_seed(limit))[:limit]
    return indices[drawn.sort().values.to(indices.device)]
