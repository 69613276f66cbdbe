"""Claimed over numeric at some entries, and how well it is known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.diagnosis.block.seen import Seen

SAME = 1e-5  # relative: what a factor may be off by, beyond measurement
_SHARP = 1e-2  # of an entry: measured worse, it agrees with too much


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Some entries that tell, wrong and right ones."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    values: Tensor  # (k,) claimed / numeric
    tolerance: Tensor  # (k,) relative


def ratios(seen: Seen) -> Ratios:
    """Return some entries that are neither zero nor badly measured; right ones are as near as they were asked to be."""
    rows, columns = (torch.cat(places) for places in zip(seen.looks, seen.right, strict=True))
    accuracy = seen.slack[rows, columns] / seen.numeric[rows, columns].abs()
    chosen = ~seen.zero[rows, columns] & (accuracy <= _SHARP)
    rows, columns, accuracy = rows[chosen], columns[chosen], accuracy[chosen]
    values = seen.claimed[rows, columns] / seen.numeric[rows, columns]
    return Ratios(rows=rows, columns=columns, values=values, tolerance=SAME + accuracy)
