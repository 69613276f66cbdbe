"""Missing sum over broadcast outputs: an input gets the gradient of one output instead of the sum over all."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.naming.wording import share_text
from gradverify.diagnosis.projections.sampled_lines import SampledLines
from gradverify.diagnosis.projections.sums import RandomProjections, is_right, sums_outside, sums_over_outputs
from gradverify.evidence import Diagnosis, WrongBlock

MISSING_BROADCAST_SUM = "missing-broadcast-sum"
MIN_SHARED = 0.9  # share of the inputs that have to enter several slices of the output


def missing_broadcast_sum(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that keeps one slice of the outputs, or one output per input, and is zero elsewhere."""
    if bool((seen.wrong & (seen.claimed != 0)).any()):
        return None
    return _one_slice(seen) or _one_output(seen) or _one_slice_per_input(seen)


def _one_slice(seen: BlockEntries) -> Diagnosis | None:
    shape = seen.block.of.shape
    kept = (seen.claimed != 0).any(1).reshape(shape)
    entries = (~seen.zero).reshape(*shape, -1)
    for dimension in range(len(shape)):
        others = tuple(place for place in range(len(shape)) if place != dimension)
        used = (kept.any(others) if others else kept).nonzero().flatten().tolist()
        slice_counts = (entries.any(others) if others else entries).sum(0)  # (n,) number of slices that an input enters
        if len(used) != 1 or int((slice_counts > 1).sum()) < MIN_SHARED * int((slice_counts > 0).sum()):
            continue
        in_slice = kept.new_zeros(shape)
        in_slice.select(dimension, used[0]).fill_(True)
        share = explained_share(seen, seen.numeric.masked_fill(~in_slice.reshape(-1, 1), 0.0))
        if share is not None:
            return as_one_slice(seen.block, dimension, used[0], share)
    return None


def as_one_slice(site: WrongBlock, dimension: int, used: int, share: float) -> Diagnosis:
    """Return the diagnosis of a gradient from one slice of the outputs, with index `used` along `dimension`."""
    shape = site.of.shape
    inside = ", ".join(str(used) if place == dimension else ":" for place in range(len(shape)))
    text = f"only {site.of.name}[{inside}] counts: the sum over the {shape[dimension]} entries"
    text += f" of dimension {dimension} is missing{share_text(share)}"
    return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)


def _one_output(seen: BlockEntries) -> Diagnosis | None:
    entries = ~seen.zero
    if not bool((entries.sum(0) > 1).any()):
        return None
    for kept, word in ((_first_in_column(entries), "first"), (_first_in_column(entries.flip(0)).flip(0), "last")):
        square = kept.shape[0] == kept.shape[1]
        if square and int(kept.sum()) == int(kept.diagonal().sum()):
            continue  # a claimed Jacobian reduced to its diagonal is a missing term
        share = explained_share(seen, seen.numeric.masked_fill(~kept, 0.0))
        if share is not None:
            text = f"each entry of {seen.block.wrt.name} gets its gradient from the {word} output that it goes into"
            text += f": the sum over all of them is missing{share_text(share)}"
            return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _one_slice_per_input(seen: BlockEntries) -> Diagnosis | None:
    """Detect a gradient from the first or last slice that each input enters, if all inputs enter equally many."""
    shape = seen.block.of.shape
    entries = (~seen.zero).reshape(*shape, -1)
    for dimension, size in enumerate(shape):
        others = tuple(place for place in range(len(shape)) if place != dimension)
        slices_of_input = entries.any(others) if others else entries  # (size, n) True where an input enters a slice
        counts = slices_of_input.sum(0)
        count = int(counts.max())
        if size < 2 or count < 2 or bool((counts[counts > 0] != count).any()):
            continue
        for kept, word in (
            (_first_in_column(slices_of_input), "first"),
            (_first_in_column(slices_of_input.flip(0)).flip(0), "last"),
        ):
            broadcast = kept.reshape(*(size if place == dimension else 1 for place in range(len(shape))), -1)
            share = explained_share(
                seen, seen.numeric.masked_fill(~broadcast.expand_as(entries).reshape(seen.wrong.shape), 0.0)
            )
            if share is not None:
                text = f"each entry of {seen.block.wrt.name} gets its gradient from the {word} of the {count} slices of"
                text += f" {seen.block.of.name} along dimension {dimension} that it goes into"
                text += f": the sum over all of them is missing{share_text(share)}"
                return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _first_in_column(entries: Tensor) -> Tensor:
    """Mask of the first set entry of every column; (m, n)."""
    return entries & (entries.cumsum(0) == 1)


def missing_broadcast_sum_in_sums(look: SampledLines) -> Diagnosis | None:
    """Diagnose claimed rows that are right in the first, or last, slice of the output and zero in all others."""
    projections = look.projections
    shape = projections.block.of.shape
    for dimension, size in enumerate(shape):
        if size == 1 or not _reaches(look, dimension):
            continue
        for kept in (0, size - 1):
            index = _index_along(projections, dimension)
            if all((index[row.position] == kept) or not bool(row.claimed.any()) for row in look.rows):
                other_slices = sums_over_outputs(projections, index != kept)
                if not bool((other_slices.claimed != 0).any()) and is_right(
                    projections, sums_outside(projections, other_slices)
                ):
                    return as_one_slice(projections.block, dimension, kept, 1.0)
    return None


def _reaches(look: SampledLines, dimension: int) -> bool:
    """True if almost all sampled inputs contribute to several slices of the output."""
    index, at = _index_along(look.projections, dimension), look.projections.block.of.coordinates
    measured = [column.entries for column in look.columns if column.entries is not None]
    reached = [index[entries.value[at].abs() > entries.bar[at]] for entries in measured]
    nonzero = [slices for slices in reached if len(slices)]
    return sum(int(slices.min()) < int(slices.max()) for slices in nonzero) >= MIN_SHARED * len(nonzero) > 0


def _index_along(projections: RandomProjections, dimension: int) -> Tensor:
    """Return the index along a dimension of every entry of the output, (m,)."""
    shape = projections.block.of.shape
    places = torch.arange(total(shape), device=projections.block.device)
    return places // total(shape[dimension + 1 :]) % shape[dimension]
