"""Missing broadcast sum in a large block: the gradient comes from one slice of the output, not from all."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.causes.missing_broadcast_sum import MIN_SHARED, as_one_slice
from gradverify.diagnosis.projections.patterns import agrees, sums_outside, sums_over_outputs
from gradverify.diagnosis.projections.sums import RandomProjections
from gradverify.diagnosis.sums.sampled_lines import SampledLines
from gradverify.evidence import Diagnosis


def missing_broadcast_sum(look: SampledLines) -> Diagnosis | None:
    """Diagnose claimed rows that are right in the first, or last, slice of the output and zero in all others."""
    projections = look.projections
    shape = projections.block.of.shape
    for dimension, size in enumerate(shape):
        if size == 1 or not _reaches(look, dimension):
            continue
        for kept in (0, size - 1):
            index = _index(projections, dimension)
            if all((index[row.position] == kept) or not bool(row.claimed.any()) for row in look.rows):
                other_slices = sums_over_outputs(projections, index != kept)
                if not bool((other_slices.claimed != 0).any()) and agrees(
                    projections, sums_outside(projections, other_slices)
                ):
                    return as_one_slice(projections.block, dimension, kept, 1.0)
    return None


def _reaches(look: SampledLines, dimension: int) -> bool:
    """True if almost all sampled inputs contribute to several slices of the output."""
    index, at = _index(look.projections, dimension), look.projections.block.of.coordinates
    measured = [column.entries for column in look.columns if column.entries is not None]
    reached = [index[entries.value[at].abs() > entries.bar[at]] for entries in measured]
    nonzero = [slices for slices in reached if len(slices)]
    return sum(int(slices.min()) < int(slices.max()) for slices in nonzero) >= MIN_SHARED * len(nonzero) > 0


def _index(projections: RandomProjections, dimension: int) -> Tensor:
    """Return the index along a dimension of every entry of the output, (m,)."""
    shape = projections.block.of.shape
    places = torch.arange(total(shape), device=projections.block.device)
    return places // total(shape[dimension + 1 :]) % shape[dimension]
