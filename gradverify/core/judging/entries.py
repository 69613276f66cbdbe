"""The worst entries of a block among those that got the same verdict."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.coordinates import Block
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged


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
class Places:
    """Where entries stand, each (k,)."""

    rows: Tensor  # in the judged chunk
    outputs: Tensor  # number of the output among those looked at
    inputs: Tensor  # coordinate of the input
    standing: Tensor  # coordinate of the output


def entries_of(
    at: Bench, code: Code, of: Block, wrt: Block, chosen: Tensor, judged: Judged, spots: Places, keep: int
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
        value=at.sampled.point[inputs],
        analytic=at.claimed[chosen[rows], outputs],
        numeric=judged.numeric[rows, outputs],
        bar=judged.bar[rows, outputs],
        error=judged.error[rows, outputs],
        allowed=judged.allowed[rows, outputs],
    )


_COLUMNS = ("output", "input", "value", "analytic", "numeric", "bar", "error", "allowed")


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


def _badness(error: Tensor, allowed: Tensor) -> Tensor:
    """Return how far an error exceeds what is allowed; not-a-number counts as worst."""
    return (error / allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(torch.inf)


def inside(block: Block, coordinates: Tensor) -> Tensor:
    """Tell which coordinates (k,) belong to a block; (k,)."""
    return (coordinates >= block.start) & (coordinates < block.stop) & ((coordinates - block.start) % block.step == 0)
