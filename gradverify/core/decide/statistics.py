"""Statistics of a comparison: the worst entries of every block, and the largest errors and error bars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.doubt import is_significant
from gradverify.core.decide.tolerance import EntryTolerance
from gradverify.core.decide.verdict import Code, Judged, agrees, of_rows
from gradverify.core.model.coordinates import Block
from gradverify.core.model.magnitudes import any_set
from gradverify.core.model.memory import rows_at_once


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
    reason: Tensor  # (k,) see Reason
    outputs: Tensor  # (p,) all positions in the output block that have such an entry
    inputs: Tensor  # (q,) all positions in the input block


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where entries stand, each (k,)."""

    rows: Tensor  # in the judged chunk
    outputs: Tensor  # number of the output among those looked at
    inputs: Tensor  # coordinate of the input
    standing: Tensor  # coordinate of the output


def entries_of(
    context: JudgingContext, code: Code, of: Block, wrt: Block, chosen: Tensor, judged: Judged, spots: Places, keep: int
) -> Entries:
    """Return the entries of one block that stand at these spots and got this verdict, the `keep` worst of them."""
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
        value=context.sampled.point[inputs],
        analytic=context.claimed[chosen[rows], outputs],
        numeric=judged.numeric[rows, outputs],
        bar=judged.bar[rows, outputs],
        error=judged.error[rows, outputs],
        allowed=judged.allowed[rows, outputs],
        reason=judged.reason[rows, outputs],
    )


def worst_of(known: Entries, found: Entries, keep: int) -> Entries:
    """Return both as one, the `keep` worst of them."""
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


def inside(block: Block, coordinates: Tensor) -> Tensor:
    """Tell which coordinates (k,) belong to a block; (k,)."""
    return (coordinates >= block.start) & (coordinates < block.stop) & ((coordinates - block.start) % block.step == 0)


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


def with_extremes(known: Extremes, claimed: Tensor, judged: Judged, allowance: EntryTolerance) -> Extremes:
    """Return the extremes with those of more entries (C, m), of which there is at least one."""
    agreed, high = agrees(judged), rows_at_once(claimed)
    for top in range(0, len(claimed), high):
        rows = slice(top, top + high)
        found = _extremes_of(claimed[rows], of_rows(judged, rows), allowance.beside[rows], agreed=agreed)
        known = wider(known, found)
    return known


def wider(one: Extremes, other: Extremes) -> Extremes:
    """Return the extremes of both."""
    return Extremes(
        error=max(one.error, other.error),
        bar=max(one.bar, other.bar),
        limit=max(one.limit, other.limit),
        vacuous=one.vacuous and other.vacuous,
    )


def _badness(error: Tensor, allowed: Tensor) -> Tensor:
    """Return how far an error exceeds what is allowed; not-a-number counts as worst."""
    return (error / allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(torch.inf)


def _extremes_of(claimed: Tensor, judged: Judged, beside: Tensor, *, agreed: bool) -> Extremes:
    """Return those of entries of which all match, or not."""
    measured = judged.numeric.abs()  # nothing, within its bar: rounding in place of a zero is of no size
    size = torch.maximum(claimed.abs(), measured.masked_fill_(measured <= judged.bar, 0.0))
    telling = is_significant(size, beside).logical_and_(size < torch.inf)
    error, bar = judged.error, judged.bar
    if not agreed:
        code = judged.code
        plain = (code == Code.MATCH) | (code == Code.MISMATCH) | (code == Code.NOT_A_SUBGRADIENT)
        error, bar = (torch.where(plain, values, -torch.inf) for values in (error, bar))
        telling &= plain
    limits = (judged.allowed / size).masked_fill_(telling.logical_not_(), -torch.inf)
    largest, widest, limit = torch.stack([error.amax(), bar.amax(), limits.amax()]).tolist()
    vacuous = limit == -math.inf and not any_set(size > 0)  # what has a limit is of some size
    return Extremes(error=largest, bar=widest, limit=limit, vacuous=vacuous)


_COLUMNS = ("output", "input", "value", "analytic", "numeric", "bar", "error", "allowed", "reason")
