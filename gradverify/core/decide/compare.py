"""Verdicts on entries, and how those of some entries are put in the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import torch
from torch import Tensor

from gradverify.core.decide.tolerance import EntryTolerance, threshold_of
from gradverify.core.estimate.nonsmooth import Local
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.magnitudes import any_set
from gradverify.result import ElementVerdict

UNDERFLOW = 1e-290  # bars that only keep room for denormal numbers
_FINE = 1e-6  # a relative tolerance above this is that of low precision


class Code(IntEnum):
    """Element verdicts as numbers that a tensor can hold."""

    MATCH = 0
    MISMATCH = 1
    KINK = 2
    JUMP = 3
    EDGE = 4
    UNDETERMINED = 5
    UNDEFINED = 6  # the forward is not finite at the point
    NOT_A_SUBGRADIENT = 7  # at a kink and between the slopes, but the row as a whole is the gradient of no piece
    NAN_PROPAGATED = 8  # no number in place of a zero, by an input that has an infinite derivative elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict on every entry of some columns, each (C, m)."""

    numeric: Tensor  # at a kink the derivative nearest to what is claimed
    bar: Tensor
    error: Tensor
    allowed: Tensor
    code: Tensor  # int8, see Code
    kinked: Tensor  # bool: an axis shows a kink or jump here, so that the interval of slopes has been consulted
    bent: Tensor  # bool: the kink is at the point itself


_FIELDS = tuple(field.name for field in fields(Judged))


def agrees(judged: Judged) -> bool:
    """Tell whether every entry matches."""
    return not any_set(judged.code)  # Code.MATCH is zero


def judge_smooth(claimed: Tensor, estimate: Estimate, allowance: EntryTolerance, zero: Tensor) -> Judged:
    """Judge entries of which nothing but a smooth derivative is known; `zero` (C, m) may stand in place of a zero."""
    own, size = claimed.abs(), estimate.value.abs()
    larger = torch.fmax(own, size).nan_to_num_(0.0, 0.0, 0.0)
    allowed = allowance.atol.add_(larger, alpha=allowance.rtol).add_(estimate.bar, alpha=BAR_FACTOR)
    allowed = torch.where(size <= estimate.bar, torch.maximum(allowed, zero), allowed)
    error = _distance(claimed, estimate.value)
    resolved = is_resolved(estimate.bar, larger, allowance)
    match = (error <= allowed).logical_and_(resolved)
    code = match.logical_not().to(torch.int8)
    if any_set(code):
        code.mul_(Code.UNDETERMINED)
        # A claim that is no number can only be held against a derivative that is known to be one.
        certain = resolved.logical_or_(own < torch.inf).logical_and_(estimate.bar < torch.inf)
        code.masked_fill_(certain.logical_and_(error > allowed), Code.MISMATCH)
    none = torch.zeros_like(match)
    return Judged(
        numeric=estimate.value, bar=estimate.bar, error=error, allowed=allowed, code=code, kinked=none, bent=none
    )


def all_matching(estimate: Estimate, error: Tensor, tolerated: Tensor) -> Judged:
    """Return the verdicts on entries that all match; `tolerated` is what is allowed beside the bars."""
    none = torch.zeros_like(error, dtype=torch.bool)
    return Judged(
        numeric=estimate.value,
        bar=estimate.bar,
        error=error,
        allowed=torch.add(tolerated, estimate.bar, alpha=BAR_FACTOR),
        code=none.view(torch.int8),  # Code.MATCH
        kinked=none,
        bent=none,
    )


def is_resolved(bar: Tensor, size: Tensor, allowance: EntryTolerance) -> Tensor:
    """Tell which error bars are small beside the entry's size, or beside what an entry of any consequence has."""
    wide = BAR_FACTOR * bar > torch.maximum(size, allowance.scale).mul_(threshold_of(allowance))
    return wide.logical_not_().logical_or_(bar <= UNDERFLOW)


def judge_local(claimed: Tensor, local: Local, allowance: EntryTolerance, faint: Tensor) -> Judged:
    """Judge entries after the thorough pass: kinks by the interval of one-sided derivatives, jumps not at all.

    Derivatives as small as `faint` (C, m) may be the rounding of something that cancels inside.
    """
    # A wrong branch would show by the steepest slope around, be it that of another input.
    scale = torch.maximum(allowance.scale, local.seen.amax(dim=0, keepdim=True))
    if allowance.rtol > _FINE:  # what low precision hides in a row or a column of zeros is small beside the others
        silent = (allowance.beside == 0) & (local.estimate.value.abs() <= local.estimate.bar)
        scale = torch.where(silent, torch.maximum(scale, allowance.largest), scale)
    allowance = replace(allowance, scale=scale)
    zero = torch.maximum(allowance.zero, BAR_FACTOR * local.hidden)
    judged = judge_smooth(claimed, local.estimate, allowance, zero)
    code = judged.code.clone()
    code[local.idle & (claimed == 0)] = Code.MATCH
    code[local.stairs & (claimed == 0) & (code == Code.MISMATCH)] = Code.UNDETERMINED  # flat here, and yet it rises
    cancels = (code == Code.MISMATCH) & ~local.kink & _may_cancel(claimed, judged, local, faint, allowance.order)
    bar = torch.where(cancels, judged.error, judged.bar)
    judged = replace(judged, bar=bar, allowed=torch.where(cancels, BAR_FACTOR * bar, judged.allowed))
    of_consequence = ~is_resolved(bar, claimed.abs(), allowance)
    code[cancels] = Code.MATCH
    code[cancels & of_consequence] = Code.UNDETERMINED
    outside = torch.maximum(local.low - claimed, claimed - local.high).clamp(min=0.0)
    allowed = judged.allowed
    inside = local.kink & (outside <= allowed)
    code[local.kink] = Code.MISMATCH
    code[inside] = Code.KINK
    fine = BAR_FACTOR * judged.bar <= threshold_of(allowance) * allowance.largest
    code[local.edge & (judged.error <= allowed) & fine] = Code.EDGE
    code[local.jump] = Code.JUMP
    code[local.outside] = Code.UNDEFINED
    error = torch.where(local.kink, outside, judged.error)
    kinked = local.kink | local.jump | local.close
    # Nothing is near to what is no number: then it is the middle of the two slopes.
    nearest = torch.where(local.kink & ~claimed.isnan(), claimed.clamp(local.low, local.high), judged.numeric)
    return Judged(
        numeric=nearest, bar=judged.bar, error=error, allowed=allowed, code=code, kinked=kinked, bent=local.kink
    )


def replaced(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those at `rows` and `outputs`, as far as they are in `where`, put in their place."""
    copy = copy_of(judged)
    put(copy, where, rows, outputs, found)
    return copy


def with_outputs(judged: Judged, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those on some outputs (k,), of all moves, put in their place."""
    every = torch.ones_like(judged.kinked)
    return replaced(judged, every, torch.arange(len(every), device=outputs.device), outputs, found)


def copy_of(judged: Judged) -> Judged:
    """Return verdicts that may be written over."""
    return Judged(**{name: getattr(judged, name).clone() for name in _FIELDS})


def stacked(rows: Sequence[Judged]) -> Judged:
    """Return the verdicts on the entries of several moves, (C, m)."""
    return Judged(**{name: torch.cat([getattr(each, name) for each in rows]) for name in _FIELDS})


def of_rows(judged: Judged, rows: Tensor | slice) -> Judged:
    """Return the verdicts on the entries of some of the moves."""
    return Judged(**{name: getattr(judged, name)[rows] for name in _FIELDS})


def put(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> None:
    """Put what was found at `rows` and `outputs`, as far as they are in `where`, into its place."""
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    mine = where[place]
    for name in _FIELDS:
        value = getattr(judged, name)
        value[place] = torch.where(mine, getattr(found, name), value[place])


def span(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows and the columns in which some flag (C, m) is set."""
    return flags.any(dim=1).nonzero().squeeze(1), flags.any(dim=0).nonzero().squeeze(1)


def _may_cancel(claimed: Tensor, judged: Judged, local: Local, faint: Tensor, order: int) -> Tensor:
    """Tell where an error is so small that cancellation in the forward may have made it, however steady it looks.

    A quantity that moves in stairs of rounding, multiplied by one that moves smoothly, is smooth between the stairs,
    with a slope that is none of the function's. Larger steps cross the stairs, so what they show is possible too. In a
    backward that is differentiated again, a linear dependence on the cotangent is smooth at every step.
    """
    low, high = local.far
    slack = (high - low).abs() + judged.bar
    shown = (claimed >= low - slack) & (claimed <= high + slack)
    small = judged.error <= faint
    leaps = (judged.error <= _LEAPS * local.rounding_jump) & shown
    return leaps | (small if order > 1 else small & shown)


def _distance(claimed: Tensor, numeric: Tensor) -> Tensor:
    """Return |claimed - numeric|: zero for equal infinities, infinite where only one of them is a number."""
    apart = (claimed - numeric).abs_()
    if not any_set(apart.isnan()):
        return apart
    apart = torch.where(claimed == numeric, 0.0, apart)
    only_one = torch.isnan(claimed) & torch.isfinite(numeric)
    return torch.where(only_one, torch.inf, apart)


ACCEPTED = frozenset({Code.MATCH, Code.KINK, Code.EDGE})


WRONG = frozenset({Code.MISMATCH, Code.NOT_A_SUBGRADIENT})


VERDICTS = {
    Code.MATCH: ElementVerdict.MATCH,
    Code.MISMATCH: ElementVerdict.MISMATCH,
    Code.KINK: ElementVerdict.KINK,
    Code.JUMP: ElementVerdict.JUMP,
    Code.EDGE: ElementVerdict.EDGE,
    Code.UNDETERMINED: ElementVerdict.UNDETERMINED,
    Code.UNDEFINED: ElementVerdict.UNDETERMINED,
    Code.NOT_A_SUBGRADIENT: ElementVerdict.MISMATCH,
    Code.NAN_PROPAGATED: ElementVerdict.UNDETERMINED,
}


_LEAPS = 2.0  # an error is explained by a leap up to this many times what the leap does to a difference
