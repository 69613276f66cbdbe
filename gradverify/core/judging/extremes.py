"""The largest error and error bar among entries, and what error would still have shown in every one of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.flags import any_set
from gradverify.core.function.portion import rows_at_once
from gradverify.core.judging.allowance import Allowance
from gradverify.core.judging.compare import Code, Judged, agrees
from gradverify.core.judging.doubt import matters
from gradverify.core.judging.replaced import of_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """Those of all entries seen so far."""

    error: float = 0.0
    bar: float = 0.0
    limit: float = -math.inf  # the largest relative error that is allowed in an entry that matters; of none, -inf
    vacuous: bool = True  # both Jacobians are zero in every entry

    @property
    def detection_limit(self) -> float | None:
        """The limit, None where no entry matters."""
        return None if self.limit == -math.inf else self.limit


def with_extremes(known: Extremes, claimed: Tensor, judged: Judged, allowance: Allowance) -> Extremes:
    """Return the extremes with those of more entries (C, m), of which there is at least one."""
    agreed, high = agrees(judged), rows_at_once(claimed)
    for top in range(0, len(claimed), high):
        rows = slice(top, top + high)
        found = _extremes_of(claimed[rows], of_rows(judged, rows), allowance.beside[rows], agreed=agreed)
        known = wider(known, found)
    return known


def _extremes_of(claimed: Tensor, judged: Judged, beside: Tensor, *, agreed: bool) -> Extremes:
    """Return those of entries of which all match, or not."""
    measured = judged.numeric.abs()  # nothing, within its bar: rounding in place of a zero is of no size
    size = torch.maximum(claimed.abs(), measured.masked_fill_(measured <= judged.bar, 0.0))
    telling = matters(size, beside).logical_and_(size < torch.inf)
    error, bar = judged.error, judged.bar
    if not agreed:
        code = judged.code
        plain = (code == Code.MATCH) | (code == Code.MISMATCH) | (code == Code.ASTRAY)
        error, bar = (torch.where(plain, values, -torch.inf) for values in (error, bar))
        telling &= plain
    limits = (judged.allowed / size).masked_fill_(telling.logical_not_(), -torch.inf)
    largest, widest, limit = torch.stack([error.amax(), bar.amax(), limits.amax()]).tolist()
    vacuous = limit == -math.inf and not any_set(size > 0)  # what has a limit is of some size
    return Extremes(error=largest, bar=widest, limit=limit, vacuous=vacuous)


def wider(one: Extremes, other: Extremes) -> Extremes:
    """Return the extremes of both."""
    return Extremes(
        error=max(one.error, other.error),
        bar=max(one.bar, other.bar),
        limit=max(one.limit, other.limit),
        vacuous=one.vacuous and other.vacuous,
    )
