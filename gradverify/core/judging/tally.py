"""Judged moves added up without keeping them: counts, extremes, and the worst entries of every block."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function.coordinates import Block
from gradverify.core.function.sampler import places
from gradverify.core.judging.bench import Bench, of_moves
from gradverify.core.judging.compare import WRONG, Allowance, Code, Judged, agrees, matters
from gradverify.core.judging.ground import Reconsider
from gradverify.core.judging.ties import Tie, Tied

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
    outputs: Tensor  # (p,) all positions in the output block that have such an entry
    inputs: Tensor  # (q,) all positions in the input block


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All entries of a Jacobian small enough to keep, each (inputs, outputs)."""

    claimed: Tensor
    numeric: Tensor
    bar: Tensor
    code: Tensor  # see Code


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some moves as they were judged, each (C, m)."""

    owner: Tensor
    claimed: Tensor
    judged: Judged


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
    parts: tuple[Part, ...]  # what was judged, for `measured`; empty where there are too many entries to keep
    at_least: bool = False  # what differs was found by search, and there may be more
    sums: int = 0  # random sums compared in place of single entries
    ties: tuple[Tie, ...] = ()  # what is said of entries that are astray

    @property
    def wrong(self) -> int:
        """How many entries are."""
        return sum(self.counts[code] for code in WRONG)


class Tally:
    """Adds up judged moves without keeping them."""

    def __init__(self, at: Bench, keep: int) -> None:
        self._at = at
        self._keep = keep
        self._counts: Counter[Code] = Counter()
        self._groups: dict[tuple[Code, Block, Block], Entries] = {}
        self._max_error = self._max_bar = 0.0
        self._limit = -math.inf  # of no entry
        self._vacuous = True
        self._size = at.sampled.point.numel() * at.sampled.value.numel()
        self._parts: list[Part] = []

    def add(self, chosen: Tensor, judged: Judged) -> None:
        """Add the verdicts on the entries of the moves (C,)."""
        owner, claimed = self._at.moves.owner[chosen], self._at.claimed[chosen]
        if not agrees(judged):
            judged = replace(judged, code=judged.code.masked_fill(owner < 0, Code.MATCH))
            for code in torch.unique(judged.code[judged.code != Code.MATCH]).tolist():
                hit = judged.code == code
                self._counts[Code(code)] += int(hit.sum())
                self._add_entries(Code(code), chosen, owner, judged, hit)
        if judged.code.numel():
            self._extremes(claimed, judged, of_moves(self._at.allowance, chosen))
        if self._size <= KEPT:
            self._parts.append(Part(owner=owner, claimed=claimed, judged=judged))

    def comparison(self) -> Comparison:
        """Return what has been added up; entries that no move owns are zero on both sides, and match."""
        self._counts[Code.MATCH] = self._size - sum(
            count for code, count in self._counts.items() if code is not Code.MATCH
        )
        return Comparison(
            entries=self._size,
            counts=self._counts,
            groups=tuple(self._groups.values()),
            max_error=self._max_error,
            max_error_bar=self._max_bar,
            detection_limit=None if self._limit == -math.inf else self._limit,
            vacuous=self._vacuous,
            parts=tuple(self._parts),
        )

    def _extremes(self, claimed: Tensor, judged: Judged, allowance: Allowance) -> None:
        measured = judged.numeric.abs()  # nothing, within its bar: rounding in place of a zero is of no size
        size = torch.maximum(claimed.abs(), measured.masked_fill(measured <= judged.bar, 0.0))
        telling = matters(size, allowance).logical_and_(size < torch.inf)
        error, bar = judged.error, judged.bar
        if not agrees(judged):
            code = judged.code
            plain = (code == Code.MATCH) | (code == Code.MISMATCH) | (code == Code.ASTRAY)
            error, bar = (torch.where(plain, values, -torch.inf) for values in (error, bar))
            telling &= plain
        limits = torch.where(telling, judged.allowed / size, -torch.inf)
        largest, widest, limit = torch.stack([error.max(), bar.max(), limits.max()]).tolist()
        self._max_error, self._max_bar = max(self._max_error, largest), max(self._max_bar, widest)
        self._limit = max(self._limit, limit)
        self._vacuous = self._vacuous and not bool((size > 0).any())

    def _add_entries(self, code: Code, chosen: Tensor, owner: Tensor, judged: Judged, hit: Tensor) -> None:
        rows, outputs = hit.nonzero(as_tuple=True)
        inputs = owner[rows, outputs]
        standing = places(self._at.sampled, outputs)
        for wrt in self._at.sampled.inputs:
            by = _inside(wrt, inputs)
            for of in self._at.sampled.outputs:
                mine = by & _inside(of, standing)
                if bool(mine.any()):
                    spots = _Places(
                        rows=rows[mine], outputs=outputs[mine], inputs=inputs[mine], standing=standing[mine]
                    )
                    self._merge(_entries(self._at, code, of, wrt, chosen, judged, spots, self._keep))

    def _merge(self, found: Entries) -> None:
        key = (found.code, found.of, found.wrt)
        known = self._groups.get(key)
        self._groups[key] = found if known is None else _worst_of(known, found, self._keep)


def tallied(at: Bench, tied: Tied, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Add up the verdicts on all moves, each looked at once more."""
    tally = Tally(at=at, keep=settings.max_elements)
    for chosen, judged in tied.parts:
        tally.add(chosen, reconsider(at, chosen, judged))
    return replace(tally.comparison(), ties=tied.ties)


def measured(comparison: Comparison, inputs: int, outputs: int) -> Measured | None:
    """Return all entries of a Jacobian with so many coordinates written out, None where they were not kept."""
    if not comparison.parts:
        return None
    like = comparison.parts[0].claimed
    whole = Measured(
        claimed=like.new_zeros(inputs, outputs),
        numeric=like.new_zeros(inputs, outputs),
        bar=like.new_zeros(inputs, outputs),
        code=torch.zeros(inputs, outputs, dtype=torch.int8, device=like.device),
    )
    for part in comparison.parts:
        rows, places = (part.owner >= 0).nonzero(as_tuple=True)
        spot = (part.owner[rows, places], places)
        whole.claimed[spot] = part.claimed[rows, places]
        whole.numeric[spot] = part.judged.numeric[rows, places]
        whole.bar[spot] = part.judged.bar[rows, places]
        whole.code[spot] = part.judged.code[rows, places]
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where entries stand, each (k,)."""

    rows: Tensor  # in the judged chunk
    outputs: Tensor  # number of the output among those looked at
    inputs: Tensor  # coordinate of the input
    standing: Tensor  # coordinate of the output


def _entries(
    at: Bench, code: Code, of: Block, wrt: Block, chosen: Tensor, judged: Judged, spots: _Places, keep: int
) -> Entries:
    spot = (spots.rows, spots.outputs)
    worst = _badness(judged.error[spot], judged.allowed[spot]).argsort(descending=True, stable=True)[:keep]
    rows, outputs, inputs = spots.rows[worst], spots.outputs[worst], spots.inputs[worst]
    standing, owners = ((spots.standing - of.start) // of.step, (spots.inputs - wrt.start) // wrt.step)
    return Entries(
        code=code,
        of=of,
        wrt=wrt,
        total=len(spots.rows),
        outputs=torch.unique(standing),
        inputs=torch.unique(owners),
        output=(spots.standing[worst] - of.start) // of.step,
        input=(inputs - wrt.start) // wrt.step,
        value=at.sampled.point[inputs],
        analytic=at.claimed[chosen[rows], outputs],
        numeric=judged.numeric[rows, outputs],
        bar=judged.bar[rows, outputs],
        error=judged.error[rows, outputs],
        allowed=judged.allowed[rows, outputs],
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
        outputs=torch.unique(torch.cat([known.outputs, found.outputs])),
        inputs=torch.unique(torch.cat([known.inputs, found.inputs])),
        **{name: values[order] for name, values in joined.items()},
    )


def _badness(error: Tensor, allowed: Tensor) -> Tensor:
    """Return how far an error exceeds what is allowed; not-a-number counts as worst."""
    return (error / allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(torch.inf)


def _inside(block: Block, coordinates: Tensor) -> Tensor:
    return (coordinates >= block.start) & (coordinates < block.stop) & ((coordinates - block.start) % block.step == 0)
