"""Ratios claimed / numeric of a sample of entries, with tolerances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries

SAME = 1e-5  # relative tolerance of a factor, in addition to the error bars
_SHARP = 1e-2  # largest relative error bar of an entry; with a larger one it agrees with too many factors


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ratios at a sample of wrong and right entries that are measured well."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    values: Tensor  # (k,) claimed / numeric
    tolerance: Tensor  # (k,) relative


def ratios(entries: BlockEntries) -> Ratios:
    """Return the ratios at the sampled entries that are neither zero nor badly measured.

    The tolerance at a right entry includes the tolerance of the check.
    """
    rows, columns = (
        torch.cat(places) for places in zip(entries.sampled_wrong.places, entries.sampled_right, strict=True)
    )
    accuracy = entries.slack[rows, columns] / entries.numeric[rows, columns].abs()
    chosen = ~entries.zero[rows, columns] & (accuracy <= _SHARP)
    rows, columns, accuracy = rows[chosen], columns[chosen], accuracy[chosen]
    values = entries.claimed[rows, columns] / entries.numeric[rows, columns]
    return Ratios(rows=rows, columns=columns, values=values, tolerance=SAME + accuracy)
