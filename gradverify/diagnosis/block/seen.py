"""A wrong block made ready for patterns: what counts as wrong, as zero, and as reproduced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.block.followed import Follows, Marks, follower
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis

ENOUGH = 0.99  # share of the squared error that a pattern has to explain
_REPRODUCED = 0.9  # share of the entries that a pattern has to hit one by one
_SPOILT = 0.01  # share of the entries that may be right and not zero, and that it would have wrong
_RESEMBLES = 0.8  # share of the looks
_CLOSE = 1e-3  # of an entry's error, and of its claim: a pattern that is no coincidence leaves less
_CAP = 0.1  # of an entry's error: no more may be put down to the measurement
_ROUNDINGS = 10  # of the dtype that backward computes in
_LOOKS = 512  # wrong entries that a pattern has to get right before all are compared
_SUMS = 1e-13  # what sums in backward may leave in place of a zero, relative to the entry's row and column


_PART = 200_000  # entries looked at together: larger temporaries cost more than their arithmetic


def _untold(axis: Axis, wrong: Tensor, region: Region, marks: Marks | None = None) -> None:
    """Say nothing where nobody can be asked."""
    del axis, wrong, region, marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The entries of a block that tell something; the others are zero everywhere and wrong nowhere."""

    claimed: Tensor  # (m, n)
    numeric: Tensor  # (m, n)
    wrong: Tensor  # (m, n) bool
    zero: Tensor  # (m, n) bool: `numeric` cannot be told from zero
    left_out: Tensor  # (m, n) bool: not finite, or not judged
    slack: Tensor  # (m, n) what measurement and rounding leave; of right entries, what was allowed
    looks: tuple[Tensor, Tensor]  # rows and columns of some wrong entries, spread over all of them
    right: tuple[Tensor, Tensor]  # and of some right ones that are not zero
    spared: float  # how many right entries each of those stands for, for every wrong one
    tolerated: float  # share of the right entries, zeros aside, that are off by more than measurement leaves
    largest: float  # error of an entry; squares are taken relative to it, so that none of them underflows
    squared: float  # the sum of the squared error over all entries that are wrong
    follows: Follows = _untold


def block_of(evidence: Evidence) -> Seen | None:
    """Return the block ready for patterns, None where a wrong entry of it is not finite."""
    found = see(evidence.backward, evidence.claimed, evidence.numeric, evidence.bar, evidence.wrong)
    return None if found is None else replace(found, follows=follower(evidence))


def see(backward: Backward, claimed: Tensor, numeric: Tensor, bar: Tensor, wrong: Tensor) -> Seen | None:
    """Return these entries ready for patterns, each (m, n); None where a wrong one is not finite, or none is wrong."""
    if not bool(wrong.any()):
        return None
    parts = _parts(wrong)
    finite = torch.cat([torch.isfinite(claimed[part] + numeric[part] + bar[part]) for part in parts])
    if bool((wrong & ~finite).any()):
        return None
    if not bool(finite.all()):
        claimed, numeric, bar = (entries.masked_fill(~finite, 0.0) for entries in (claimed, numeric, bar))
    zero, left_out, slack = torch.empty_like(wrong), torch.empty_like(wrong), torch.empty_like(bar)
    dtypes = {primal.tensor.dtype for primal in backward.problem.primals}
    rtol, roundings = relative_tolerance(Tolerances(), dtypes), _ROUNDINGS * _eps(dtypes)
    own, other = _Sums.of(claimed), _Sums.of(numeric)
    off = 0
    for part in parts:
        error, bars = (claimed[part] - numeric[part]).abs(), BAR_FACTOR * bar[part]
        noise = roundings * claimed[part].abs() + own.rounding(part)
        allowed = bars + rtol * torch.maximum(claimed[part].abs(), numeric[part].abs()) + noise
        left_out[part] = ~finite[part] | (~wrong[part] & (error > allowed))
        zero[part] = left_out[part] | (numeric[part].abs() <= bars + other.rounding(part))
        slack[part] = torch.where(wrong[part], bars + noise, allowed)
        off += int(((error > bars + noise) & ~(wrong[part] | zero[part])).sum())
    if bool(left_out.any()):
        claimed, numeric = claimed.masked_fill(left_out, 0.0), numeric.masked_fill(left_out, 0.0)
    errors = torch.cat([(claimed[part] - numeric[part])[wrong[part]] for part in parts])
    largest = float(errors.abs().max())
    fine = ~(wrong | zero)
    right = _looks(fine)
    return Seen(
        claimed=claimed,
        numeric=numeric,
        wrong=wrong,
        zero=zero,
        left_out=left_out,
        slack=slack,
        looks=_looks(wrong),
        right=right,
        spared=int(fine.sum()) / max(1, len(right[0])) / int(wrong.sum()),
        tolerated=off / max(1, int(fine.sum())),
        largest=largest,
        squared=float(torch.linalg.vector_norm(errors.div_(largest))) ** 2,
    )


def share_of(seen: Seen, predicted: Tensor, scale: float = 1.0) -> float | None:
    """Return the share of the squared error that vanishes when `predicted` (m, n) is expected; None if below ENOUGH.

    `scale` is by how much the prediction enlarges numeric values, and with them their error. A prediction counts only
    where it hits nearly all of the entries that it is about, so that one large entry does not speak for the others, and
    where hardly any entry is right that it would have wrong.
    """
    if not resembles(seen, predicted[seen.looks], scale):
        return None
    hits = touched = spoilt = 0
    squared = 0.0
    for part in _parts(seen.wrong):
        wrong, error = seen.wrong[part], (seen.claimed[part] - seen.numeric[part]).abs()
        slack = max(scale, 1.0) * seen.slack[part]
        slack = torch.where(wrong, torch.minimum(slack, _CAP * error), slack)
        rest = ((seen.claimed[part] - predicted[part]).abs() - slack).clamp_(min=0.0)
        rest.masked_fill_(seen.left_out[part], 0.0)
        hits += int((wrong & (rest <= _leftover(error, seen.claimed[part], predicted[part]))).sum())
        touched += int((wrong | (rest > 0)).sum())
        spoilt += int(((rest > 0) & ~(wrong | seen.zero[part])).sum())
        squared += float(torch.linalg.vector_norm(rest.div_(seen.largest))) ** 2
        if squared > (1 - ENOUGH) * seen.squared:
            return None  # whatever the other parts say
    share = 1.0 - squared / seen.squared
    told = hits >= _REPRODUCED * touched and spoilt <= _SPOILT * touched
    return share if told and share >= ENOUGH else None


def resembles(seen: Seen, predicted: Tensor, scale: float = 1.0) -> bool:
    """Tell whether a pattern gets most of the entries in `seen.looks` right, where it expects `predicted` (k,)."""
    claimed, at = seen.claimed[seen.looks], seen.looks
    error = (claimed - seen.numeric[at]).abs()
    slack = torch.minimum(max(scale, 1.0) * seen.slack[at], _CAP * error)
    near = (claimed - predicted).abs() <= slack + _leftover(error, claimed, predicted)
    return int(near.sum()) >= _RESEMBLES * len(near)


def spoils(seen: Seen, predicted: Tensor) -> bool:
    """Tell whether a pattern would have more right entries wrong than there are wrong ones, by those in `seen.right`.

    `predicted` (k,) is what it expects there.
    """
    off = (seen.claimed[seen.right] - predicted).abs() > seen.slack[seen.right]
    return int(off.sum()) * seen.spared > 1.0


def contradicts(seen: Seen, predicted: Tensor, scale: float = 1.0) -> bool:
    """Tell whether any right entry, zeros aside, would be wrong if `predicted` (m, n) were expected; see `share_of`."""
    for part in _parts(seen.wrong):
        off = (seen.claimed[part] - predicted[part]).abs() > max(scale, 1.0) * seen.slack[part]
        if bool((off & ~(seen.wrong[part] | seen.zero[part])).any()):
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One number for claimed / numeric."""

    value: float
    accuracy: float  # relative


def ratio_of(seen: Seen, inside: Tensor) -> Ratio | None:
    """Return the middle of claimed / numeric over some wrong entries `inside` (bool); None where all are zero."""
    chosen = inside[seen.looks] & ~seen.zero[seen.looks]
    rows, columns = (places[chosen] for places in seen.looks)
    if not len(rows):
        return None
    numeric = seen.numeric[rows, columns]
    ratio = seen.claimed[rows, columns] / numeric
    accuracy = seen.slack[rows, columns] / numeric.abs()
    middle = accuracy.median()
    return Ratio(value=float(ratio[accuracy <= middle].median()), accuracy=float(middle))


def follows(seen: Seen, inside: Tensor, factor: float) -> bool:
    """Tell whether all wrong entries `inside` (m, n) bool are that many times what they should be."""
    at = inside & seen.wrong
    claimed, numeric = seen.claimed[at], seen.numeric[at]
    error = (claimed - numeric).abs()
    slack = torch.minimum(max(abs(factor), 1.0) * seen.slack[at], _CAP * error)
    predicted = factor * numeric
    return bool(((claimed - predicted).abs() <= slack + _leftover(error, claimed, predicted)).all())


def _leftover(error: Tensor, claimed: Tensor, predicted: Tensor) -> Tensor:
    """Return what a pattern may leave of entries: a small part of the error, and of what is claimed.

    Beside a claim that is next to nothing the error is the whole entry, and whatever is small would pass for a pattern.
    """
    return _CLOSE * torch.minimum(error, torch.maximum(claimed.abs(), predicted.abs()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """The largest entry of every row and column, which sums in backward leave roundings of in place of zeros."""

    rows: Tensor  # (m, 1)
    columns: Tensor  # (1, n)

    @staticmethod
    def of(entries: Tensor) -> _Sums:
        rows = torch.linalg.vector_norm(entries, torch.inf, dim=1, keepdim=True)
        return _Sums(rows=rows, columns=torch.linalg.vector_norm(entries, torch.inf, dim=0, keepdim=True))

    def rounding(self, part: slice) -> Tensor:
        return _SUMS * torch.minimum(self.rows[part], self.columns)


def _eps(dtypes: Iterable[torch.dtype]) -> float:
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=torch.finfo(torch.float64).eps)


def _parts(entries: Tensor) -> list[slice]:
    rows, columns = entries.shape
    step = max(1, _PART // max(1, columns))
    return [slice(start, start + step) for start in range(0, rows, step)]


def _looks(wrong: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = wrong.nonzero(as_tuple=True)
    stride = max(1, len(rows) // _LOOKS)
    return rows[::stride], columns[::stride]
