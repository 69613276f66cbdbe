"""Judged moves added up without keeping them: counts, extremes, and the worst entries of every block."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.decide.context import JudgingContext, Reconsider, of_moves
from gradverify.core.decide.statistics import Entries, Extremes, Places, entries_of, inside, with_extremes, worst_of
from gradverify.core.decide.ties import Tie, Tied
from gradverify.core.decide.verdict import ACCEPTED, WRONG, Code, Judged, Reason, agrees, decide
from gradverify.core.forward.sampler import places
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import any_set

KEPT = 4_000_000  # entries of a Jacobian that are kept whole for a diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseEntries:
    """All entries of a Jacobian small enough to keep, each (inputs, outputs)."""

    claimed: Tensor
    numeric: Tensor
    bar: Tensor
    code: Tensor  # see Code


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPart:
    """Some moves as they were judged, each (C, m)."""

    column_of: Tensor
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
    parts: tuple[JudgedPart, ...]  # what was judged, for `measured`; empty where there are too many entries to keep
    at_least: bool = False  # what differs was found by search, and there may be more
    sums: int = 0  # random sums compared in place of single entries
    ties: tuple[Tie, ...] = ()  # what is said of entries that are astray
    unnamed: tuple[tuple[Block, Block], ...] = ()  # outputs and inputs whose sums differ, without a known wrong entry

    @property
    def wrong(self) -> int:
        """How many entries are."""
        return sum(self.counts[code] for code in WRONG)


def is_accepted(comparison: Comparison) -> bool:
    """Tell whether every entry is as it should be."""
    return all(code in ACCEPTED for code, count in comparison.counts.items() if count)


class ComparisonBuilder:
    """Adds up judged moves without keeping them."""

    def __init__(self, context: JudgingContext, keep: int) -> None:
        self._context = context
        self._keep = keep
        self._counts: Counter[Code] = Counter()
        self._groups: dict[tuple[Code, Block, Block], Entries] = {}
        self._extremes = Extremes()
        self._size = context.sampled.point.numel() * context.sampled.value.numel()
        self._parts: list[JudgedPart] = []

    def add(self, chosen: Tensor, judged: Judged) -> None:
        """Add the verdicts on the entries of the moves (C,)."""
        column_of, claimed = self._context.column_groups.column_of, self._context.claimed
        if len(chosen) < self._context.column_groups.count:
            column_of, claimed = column_of[chosen], claimed[chosen]
        if not agrees(judged):
            judged = decide(judged, [(column_of < 0, Reason.NO_ENTRY)])
            for code in torch.unique(judged.code[judged.code != Code.MATCH]).tolist():
                hit = judged.code == code
                self._counts[Code(code)] += int(hit.sum())
                self._add_entries(Code(code), chosen, column_of, judged, hit)
        if judged.code.numel():
            self._extremes = with_extremes(self._extremes, claimed, judged, of_moves(self._context.allowance, chosen))
        if self._size <= KEPT:
            self._parts.append(JudgedPart(column_of=column_of, claimed=claimed, judged=judged))

    def comparison(self) -> Comparison:
        """Return what has been added up; entries that no move owns are zero on both sides, and match."""
        self._counts[Code.MATCH] = self._size - sum(
            count for code, count in self._counts.items() if code is not Code.MATCH
        )
        return Comparison(
            entries=self._size,
            counts=self._counts,
            groups=tuple(self._groups.values()),
            max_error=self._extremes.error,
            max_error_bar=self._extremes.bar,
            detection_limit=self._extremes.detection_limit,
            vacuous=self._extremes.vacuous,
            parts=tuple(self._parts),
        )

    def _add_entries(self, code: Code, chosen: Tensor, column_of: Tensor, judged: Judged, hit: Tensor) -> None:
        rows, outputs = hit.nonzero(as_tuple=True)
        inputs = column_of[rows, outputs]
        standing = places(self._context.sampled, outputs)
        for wrt in self._context.sampled.inputs:
            by = inside(wrt, inputs)
            for of in self._context.sampled.outputs:
                mine = by & inside(of, standing)
                if any_set(mine):
                    spots = Places(rows=rows[mine], outputs=outputs[mine], inputs=inputs[mine], standing=standing[mine])
                    self._merge(entries_of(self._context, code, of, wrt, chosen, judged, spots, self._keep))

    def _merge(self, found: Entries) -> None:
        key = (found.code, found.of, found.wrt)
        known = self._groups.get(key)
        self._groups[key] = found if known is None else worst_of(known, found, self._keep)


def matching(extremes: Extremes, entries: int, parts: tuple[JudgedPart, ...]) -> Comparison:
    """Return the comparison of so many entries that all match."""
    return Comparison(
        entries=entries,
        counts=Counter({Code.MATCH: entries}),
        groups=(),
        max_error=extremes.error,
        max_error_bar=extremes.bar,
        detection_limit=extremes.detection_limit,
        vacuous=extremes.vacuous,
        parts=parts,
    )


def beside(rest: Comparison, matching: Comparison) -> Comparison:
    """Return the comparison of entries of which all match that are not in `rest`."""
    limits = [limit for limit in (rest.detection_limit, matching.detection_limit) if limit is not None]
    return replace(
        rest,
        entries=matching.entries,
        counts=rest.counts + Counter({Code.MATCH: matching.entries - rest.entries}),
        max_error=max(rest.max_error, matching.max_error),
        max_error_bar=max(rest.max_error_bar, matching.max_error_bar),
        detection_limit=max(limits, default=None),
        vacuous=rest.vacuous and matching.vacuous,
        parts=matching.parts,
    )


def summarized(context: JudgingContext, tied: Tied, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Add up the verdicts on all moves, each looked at once more."""
    builder = ComparisonBuilder(context=context, keep=settings.max_elements)
    for chosen, judged in tied.parts:
        builder.add(chosen, reconsider(context, chosen, judged))
    return replace(builder.comparison(), ties=tied.ties)


def dense_entries(comparison: Comparison, inputs: int, outputs: int) -> DenseEntries | None:
    """Return all entries of a Jacobian with so many coordinates written out, None where they were not kept."""
    if not comparison.parts:
        return None
    like = comparison.parts[0].claimed
    whole = DenseEntries(
        claimed=like.new_zeros(inputs, outputs),
        numeric=like.new_zeros(inputs, outputs),
        bar=like.new_zeros(inputs, outputs),
        code=torch.zeros(inputs, outputs, dtype=torch.int8, device=like.device),
    )
    for part in comparison.parts:
        rows, places = (part.column_of >= 0).nonzero(as_tuple=True)
        spot = (part.column_of[rows, places], places)
        whole.claimed[spot] = part.claimed[rows, places]
        whole.numeric[spot] = part.judged.numeric[rows, places]
        whole.bar[spot] = part.judged.bar[rows, places]
        whole.code[spot] = part.judged.code[rows, places]
    return whole
