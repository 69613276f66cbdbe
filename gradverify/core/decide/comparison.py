"""Verdicts accumulated over column groups: counts, extremes, and the worst entries of every block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.decide.compare import EntryTolerance, is_significant
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.subgradients import WrongDirection, judge_subgradients
from gradverify.core.decide.verdict import ACCEPTED, WRONG, Code, Judged, Reason, agrees, decide
from gradverify.core.forward.sampler import output_indices
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import any_set
from gradverify.deadline import OutOfTime

KEPT = 4_000_000  # entries up to which the whole Jacobian is held: if compared densely, and for the diagnosis


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The entries of one block with the same verdict: their number, and the worst of them."""

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
    reason: Tensor  # (k,) see Reason
    outputs: Tensor  # (p,) all positions in the output block that have such an entry
    inputs: Tensor  # (q,) all positions in the input block


_JUDGED = ("numeric", "bar", "error", "allowed", "reason")  # fields of `Judged` that an entry keeps
_Indices = tuple[Tensor, Tensor]  # column groups and outputs, each (k,)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEntries:
    """All column groups with their verdicts, each (M, m)."""

    column_of: Tensor
    claimed: Tensor
    judged: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """Largest values over some entries."""

    error: float = 0.0
    bar: float = 0.0
    limit: float = -math.inf  # largest relative error allowed to a significant entry; -inf if there is none
    vacuous: bool = True  # both Jacobians are zero in every entry

    @property
    def detection_limit(self) -> float | None:
        """The largest relative error allowed to a significant entry; None if there is none."""
        return None if self.limit == -math.inf else self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result of comparing the claimed with the numeric Jacobian."""

    entries: int  # number of entries compared
    counts: Counter[Code]
    groups: tuple[Entries, ...]  # one for every block and verdict other than match
    extremes: Extremes
    judged: JudgedEntries | None = None  # all verdicts; None if there are too many entries to keep
    at_least: bool = False  # wrong entries were found by a search that may have missed others
    sums: int = 0  # number of random sums compared in place of single entries
    wrong_directions: tuple[WrongDirection, ...] = ()  # directions in which rows at a kink are no subgradients
    blocks_without_entry: tuple[
        tuple[Block, Block], ...
    ] = ()  # (outputs, inputs) whose sums differ, without a known wrong entry

    @property
    def wrong(self) -> int:
        """Number of wrong entries."""
        return sum(self.counts[code] for code in WRONG)


def is_accepted(comparison: Comparison) -> bool:
    """True if every entry has an accepted verdict."""
    return all(code in ACCEPTED for code, count in comparison.counts.items() if count)


def extremes_of(claimed: Tensor, judged: Judged, allowance: EntryTolerance) -> Extremes:
    """Return the extremes of entries (C, m)."""
    if not claimed.numel():
        return Extremes()
    numeric = judged.numeric.abs()  # an entry within its bar of zero counts as zero
    size = torch.maximum(claimed.abs(), numeric.masked_fill_(numeric <= judged.bar, 0.0))
    significant = is_significant(size, allowance.row_column_size).logical_and_(size < torch.inf)
    error, bar = judged.error, judged.bar
    if not agrees(judged):
        code = judged.code
        decided = (code == Code.MATCH) | (code == Code.MISMATCH) | (code == Code.NOT_A_SUBGRADIENT)
        error, bar = (torch.where(decided, values, -torch.inf) for values in (error, bar))
        significant &= decided
    limits = (judged.allowed / size).masked_fill_(significant.logical_not_(), -torch.inf)
    largest, widest, limit = torch.stack([error.amax(), bar.amax(), limits.amax()]).tolist()
    vacuous = limit == -math.inf and not any_set(size > 0)  # a limit implies a nonzero entry
    return Extremes(error=max(0.0, largest), bar=max(0.0, widest), limit=limit, vacuous=vacuous)


def merged_extremes(one: Extremes, other: Extremes) -> Extremes:
    """Return the extremes of both sets of entries."""
    return Extremes(
        error=max(one.error, other.error),
        bar=max(one.bar, other.bar),
        limit=max(one.limit, other.limit),
        vacuous=one.vacuous and other.vacuous,
    )


def comparison_of(context: JudgingContext, chosen: Tensor, judged: Judged) -> Comparison:
    """Return the comparison of some column groups (C,); entries in none are zero in both Jacobians, and match."""
    column_of, claimed = context.column_groups.column_of, context.claimed
    if len(chosen) < context.column_groups.count:
        column_of, claimed = column_of[chosen], claimed[chosen]
    size = context.sampled.point.numel() * context.sampled.value.numel()
    counts: Counter[Code] = Counter()
    groups: list[Entries] = []
    if not agrees(judged):
        judged = decide(judged, [(column_of < 0, Reason.NO_ENTRY)])
        for code in map(Code, torch.unique(judged.code[judged.code != Code.MATCH]).tolist()):
            counts[code] = int((judged.code == code).sum())
            if code is not Code.UNEXAMINED:
                groups += _entries_by_block(context, code, chosen, column_of, judged)
    counts[Code.MATCH] = size - counts.total()
    return Comparison(
        entries=size,
        counts=counts,
        groups=tuple(groups),
        extremes=extremes_of(claimed, judged, of_column_groups(context.allowance, chosen)),
        judged=JudgedEntries(column_of=column_of, claimed=claimed, judged=judged) if size <= KEPT else None,
    )


def compare_verdicts(context: JudgingContext, judged: Judged) -> Comparison:
    """Return the comparison of all column groups, after judging rows at kinks as a whole, and after `reconsider`.

    Neither is needed if all entries match, nor changes a match or a mismatch. When time runs out, all other entries are
    UNFINISHED.
    """
    every = torch.arange(context.column_groups.count, device=context.claimed.device)
    wrong_directions: tuple[WrongDirection, ...] = ()
    try:
        if not agrees(judged):
            judged, wrong_directions = judge_subgradients(context, judged)
            judged = context.reconsider(context, every, judged)
    except OutOfTime:
        judged = decide(judged, [(judged.code > Code.MISMATCH, Reason.OUT_OF_TIME)])
    return replace(comparison_of(context, every, judged), wrong_directions=wrong_directions)


def _entries_by_block(
    context: JudgingContext, code: Code, chosen: Tensor, column_of: Tensor, judged: Judged
) -> Iterator[Entries]:
    """Yield the entries with one verdict, for every block that has any."""
    rows, outputs = (judged.code == code).nonzero(as_tuple=True)
    inputs, coordinates = column_of[rows, outputs], output_indices(context.sampled, outputs)
    for wrt in context.sampled.inputs:
        in_input = _belongs_to(wrt, inputs)
        for of in context.sampled.outputs:
            in_block = in_input & _belongs_to(of, coordinates)
            if any_set(in_block):
                yield _entries_of(context, code, (of, wrt), chosen, judged, (rows[in_block], outputs[in_block]))


def _entries_of(
    context: JudgingContext, code: Code, blocks: tuple[Block, Block], chosen: Tensor, judged: Judged, at: _Indices
) -> Entries:
    """Return the entries `at` these indices of one block (output, input), all with verdict `code`."""
    (of, wrt), (rows, outputs) = blocks, at
    in_output = (output_indices(context.sampled, outputs) - of.start) // of.step
    inputs = context.column_groups.column_of[chosen[rows], outputs]
    in_input = (inputs - wrt.start) // wrt.step
    worst = _worst(judged.error[at], judged.allowed[at], context.settings.max_elements)
    at = rows[worst], outputs[worst]
    return Entries(
        code=code,
        of=of,
        wrt=wrt,
        total=len(rows),
        outputs=torch.unique(in_output),
        inputs=torch.unique(in_input),
        output=in_output[worst],
        input=in_input[worst],
        value=context.sampled.point[inputs[worst]],
        analytic=context.claimed[chosen[at[0]], at[1]],
        **{name: getattr(judged, name)[at] for name in _JUDGED},
    )


def _belongs_to(block: Block, coordinates: Tensor) -> Tensor:
    """Mask of coordinates (k,) that belong to a block; (k,)."""
    return (coordinates >= block.start) & (coordinates < block.stop) & ((coordinates - block.start) % block.step == 0)


def _worst(error: Tensor, allowed: Tensor, keep: int) -> Tensor:
    """Return the indices of the entries with the largest error / allowed, `keep` at most, worst first.

    A quotient that is nan counts as less than inf: an error beside a known derivative says more.
    """
    limits = torch.finfo(torch.float64)
    badness = (error / allowed.clamp(min=limits.tiny)).nan_to_num(nan=limits.max, posinf=torch.inf)
    return badness.argsort(descending=True, stable=True)[:keep]
