"""Whether a pattern of the derivative explains what backward claims all over a large block, by its random sums."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.function.coordinates import Block
from gradverify.core.function.flags import all_set
from gradverify.core.numeric.samples import BAR_FACTOR, Estimate
from gradverify.core.whole.sums import Asked, Summed, along, steep, summed_up

_CLOSE = 1e-3  # of the error: a pattern that is no coincidence leaves less
_CAP = 0.1  # of the error: no more may be put down to the measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Entry (o, i) of the claimed block is by_row[o] * by_column[i] * the derivative of rows[o] by columns[i]."""

    rows: Tensor | None = None  # (p,) coordinates, None: the block's own
    columns: Tensor | None = None  # (q,)
    by_row: Tensor | None = None  # (p,) factors, None: ones
    by_column: Tensor | None = None  # (q,)


def expected(asked: Asked, pattern: Pattern) -> Summed:
    """Return what the sums should be if the pattern held; costs forwards only where it is about columns."""
    of, wrt = asked.sums.of, asked.sums.wrt
    given = asked.cotangents[:, of.coordinates]
    given = given if pattern.by_row is None else given * pattern.by_row
    cotangents = _placed(given, asked.cotangents, of, pattern.rows)
    slopes = asked.slopes
    if pattern.columns is not None or pattern.by_column is not None:
        moves = asked.directions[:, wrt.coordinates]
        moves = moves if pattern.by_column is None else moves * pattern.by_column
        slopes = along(asked, _placed(moves, asked.directions, wrt, pattern.columns))
    return summed_up(cotangents, slopes)


def exchanged(asked: Asked) -> Summed:
    """Return what the sums should be if the transposed Jacobian were claimed; costs 48 forwards or more."""
    of, wrt, ground = asked.sums.of, asked.sums.wrt, asked.sums.ground
    weighing = torch.zeros(len(asked.directions), asked.cotangents.shape[1], device=asked.sums.device).double()
    weighing[:, of.coordinates] = asked.directions[:, wrt.coordinates]
    found = []
    for cotangent in asked.cotangents:
        move = torch.zeros_like(ground.sampled.point)
        move[wrt.coordinates] = cotangent[of.coordinates]
        size = (move.abs() / ground.lengths.step).max()
        found.append((steep(ground, weighing, move / size), size))
    slopes = [Estimate(value=each.value * size, bar=each.bar * size) for each, size in found]
    turned = summed_up(weighing, slopes)
    return Summed(value=turned.value.T, bar=turned.bar.T)


def holds(asked: Asked, found: Summed, claimed: Tensor | None = None) -> bool:
    """Tell whether backward's sums, or those given, are the expected ones, as nearly as measurement can tell."""
    said = asked.claimed if claimed is None else claimed
    slack = torch.minimum(BAR_FACTOR * found.bar + asked.rounding, _CAP * asked.typical)
    return all_set((said - found.value).abs() <= slack + _CLOSE * asked.typical)


def explains(asked: Asked, pattern: Pattern) -> bool:
    """Tell whether the pattern holds all over the block."""
    return holds(asked, expected(asked, pattern))


def _placed(values: Tensor, like: Tensor, block: Block, places: Tensor | None) -> Tensor:
    whole = torch.zeros_like(like)
    if places is None:
        whole[:, block.coordinates] = values
        return whole
    return whole.index_add_(1, places, values)
