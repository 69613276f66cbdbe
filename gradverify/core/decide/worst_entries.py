"""The worst entries of every block with one verdict."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.model.coordinates import Block


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryIndices:
    """Indices of entries, each (k,)."""

    rows: Tensor  # index of the column group in the judged chunk
    outputs: Tensor  # index of the output among those looked at
    inputs: Tensor  # input coordinate
    coordinates: Tensor  # output coordinate


def entries_of(
    context: JudgingContext,
    code: Code,
    of: Block,
    wrt: Block,
    chosen: Tensor,
    judged: Judged,
    spots: EntryIndices,
    keep: int,
) -> Entries:
    """Return the entries of one block at these indices, all with verdict `code`; keeps the `keep` worst."""
    index = (spots.rows, spots.outputs)
    worst = _badness(judged.error[index], judged.allowed[index]).argsort(descending=True, stable=True)[:keep]
    rows, outputs, inputs = spots.rows[worst], spots.outputs[worst], spots.inputs[worst]
    in_output, in_input = ((spots.coordinates - of.start) // of.step, (spots.inputs - wrt.start) // wrt.step)
    return Entries(
        code=code,
        of=of,
        wrt=wrt,
        total=len(spots.rows),
        outputs=torch.unique(in_output),
        inputs=torch.unique(in_input),
        output=(spots.coordinates[worst] - of.start) // of.step,
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
    """Return both sets of entries as one; keeps the `keep` worst."""
    joined = {name: torch.cat([getattr(known, name), getattr(found, name)]) for name in _PER_ENTRY}
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


def belongs_to(block: Block, coordinates: Tensor) -> Tensor:
    """Mask of coordinates (k,) that belong to a block; (k,)."""
    return (coordinates >= block.start) & (coordinates < block.stop) & ((coordinates - block.start) % block.step == 0)


def _badness(error: Tensor, allowed: Tensor) -> Tensor:
    """Return error / allowed; if that is nan, less than inf: an error beside a known derivative says more."""
    limits = torch.finfo(torch.float64)
    return (error / allowed.clamp(min=limits.tiny)).nan_to_num(nan=limits.max, posinf=torch.inf)


_PER_ENTRY = ("output", "input", "value", "analytic", "numeric", "bar", "error", "allowed", "reason")
