"""Judged columns added up without keeping them: counts, extremes, and the worst entries of every block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.columns import Bench, map_judged
from gradverify.core.compare import Code, Judged
from gradverify.core.coordinates import Block

KEPT = 4_000_000  # entries of a Jacobian that are kept whole for a diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The entries of one block that got the same verdict: the worst of them, and how many there are."""

    code: Code
    of: Block
    wrt: Block
    total: int
    output: Tensor  # (k,) position in the output block, worst first
    input: Tensor  # (k,) position in the input block
    value: Tensor  # (k,) the input's value
    analytic: Tensor  # (k,)
    numeric: Tensor
    bar: Tensor
    error: Tensor
    allowed: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All entries of a Jacobian small enough to keep, each (inputs, outputs)."""

    numeric: Tensor
    bar: Tensor
    code: Tensor  # see Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the comparison of two Jacobians has to say."""

    entries: int  # compared
    counts: Counter[Code]
    groups: tuple[Entries, ...]  # of every block and verdict other than match
    max_error: float
    max_error_bar: float
    detection_limit: float | None
    vacuous: bool  # both Jacobians are zero in every entry
    measured: Measured | None  # None where there are too many entries to keep


class Tally:
    """Adds up judged columns without keeping them."""

    def __init__(self, at: Bench, keep: int) -> None:
        self._at = at
        self._keep = keep
        self._counts: Counter[Code] = Counter()
        self._groups: dict[tuple[Code, Block, Block], Entries] = {}
        self._max_error = self._max_bar = 0.0
        self._limit: float | None = None
        self._vacuous = True
        self._kept: list[Judged] | None = [] if at.claimed.numel() <= KEPT else None

    def add(self, columns: Tensor, judged: Judged) -> None:
        if self._kept is not None:
            self._kept.append(judged)
        for code in Code:
            self._counts[code] += int((judged.code == code).sum())
        self._extremes(self._at.claimed[columns], judged)
        if bool((judged.code == Code.MATCH).all()):
            return
        for wrt in self._at.sampled.inputs:
            inside = (columns >= wrt.start) & (columns < wrt.stop) & ((columns - wrt.start) % wrt.step == 0)
            if bool(inside.any()):
                self._add_block(columns[inside], wrt, _rows(judged, inside))

    def comparison(self) -> Comparison:
        return Comparison(
            entries=sum(self._counts.values()),
            counts=self._counts,
            groups=tuple(self._groups.values()),
            max_error=self._max_error,
            max_error_bar=self._max_bar,
            detection_limit=self._limit,
            vacuous=self._vacuous,
            measured=self._measured(),
        )

    def _measured(self) -> Measured | None:
        if not self._kept:
            return None
        return Measured(
            numeric=torch.cat([judged.numeric for judged in self._kept]),
            bar=torch.cat([judged.bar for judged in self._kept]),
            code=torch.cat([judged.code for judged in self._kept]),
        )

    def _extremes(self, claimed: Tensor, judged: Judged) -> None:
        plain = (judged.code == Code.MATCH) | (judged.code == Code.MISMATCH)
        if not bool(plain.any()):
            return
        self._max_error = max(self._max_error, float(judged.error[plain].max()))
        self._max_bar = max(self._max_bar, float(judged.bar[plain].max()))
        size = torch.maximum(claimed.abs(), judged.numeric.abs())
        self._vacuous = self._vacuous and not bool((size > 0).any())
        telling = plain & (size > 0) & torch.isfinite(size)
        if bool(telling.any()):
            limit = float((judged.allowed[telling] / size[telling]).max())
            self._limit = limit if self._limit is None else max(self._limit, limit)

    def _add_block(self, columns: Tensor, wrt: Block, judged: Judged) -> None:
        for of in self._at.sampled.outputs:
            part = _of_output(judged, of)
            for code in Code:
                hit = part.code == code
                if code is not Code.MATCH and bool(hit.any()):
                    self._merge(_entries(self._at, code, of, wrt, columns, part, hit, self._keep))

    def _merge(self, found: Entries) -> None:
        key = (found.code, found.of, found.wrt)
        known = self._groups.get(key)
        self._groups[key] = found if known is None else _worst_of(known, found, self._keep)


def _entries(
    at: Bench, code: Code, of: Block, wrt: Block, columns: Tensor, judged: Judged, hit: Tensor, keep: int
) -> Entries:
    rows, places = hit.nonzero(as_tuple=True)
    order = _badness(judged.error[hit], judged.allowed[hit]).argsort(descending=True, stable=True)[:keep]
    rows, places = rows[order], places[order]
    moved = columns[rows]
    return Entries(
        code=code,
        of=of,
        wrt=wrt,
        total=int(hit.sum()),
        output=places,
        input=(moved - wrt.start) // wrt.step,
        value=at.sampled.point[moved],
        analytic=at.claimed[moved][:, of.coordinates].gather(1, places.unsqueeze(1)).squeeze(1),
        numeric=judged.numeric[rows, places],
        bar=judged.bar[rows, places],
        error=judged.error[rows, places],
        allowed=judged.allowed[rows, places],
    )


_COLUMNS = ("output", "input", "value", "analytic", "numeric", "bar", "error", "allowed")


def _worst_of(known: Entries, found: Entries, keep: int) -> Entries:
    joined = {name: torch.cat([getattr(known, name), getattr(found, name)]) for name in _COLUMNS}
    order = _badness(joined["error"], joined["allowed"]).argsort(descending=True, stable=True)[:keep]
    return Entries(
        code=known.code,
        of=known.of,
        wrt=known.wrt,
        total=known.total + found.total,
        **{name: values[order] for name, values in joined.items()},
    )


def _badness(error: Tensor, allowed: Tensor) -> Tensor:
    """Return how far an error exceeds what is allowed; not-a-number counts as worst."""
    return (error / allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(torch.inf)


def _of_output(judged: Judged, of: Block) -> Judged:
    return map_judged(judged, lambda values: values[:, of.coordinates])


def _rows(judged: Judged, chosen: Tensor) -> Judged:
    return map_judged(judged, lambda values: values[chosen])
