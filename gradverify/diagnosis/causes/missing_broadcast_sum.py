"""Missing sum over broadcast outputs: an input gets the gradient of one output instead of the sum over all."""

from __future__ import annotations

from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.naming.wording import share_text
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

MISSING_BROADCAST_SUM = "missing-broadcast-sum"
MIN_SHARED = 0.9  # share of the inputs that have to enter several slices of the output


def missing_broadcast_sum(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that keeps one slice of the outputs, or one output per input, and is zero elsewhere."""
    if bool((seen.wrong & (seen.claimed != 0)).any()):
        return None
    return _one_slice(evidence, seen) or _one_output(evidence, seen) or _one_slice_per_input(evidence, seen)


def _one_slice(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    shape = evidence.of.shape
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
            return as_one_slice(evidence, dimension, used[0], share)
    return None


def as_one_slice(site: WrongBlock, dimension: int, used: int, share: float) -> Diagnosis:
    """Return the diagnosis of a gradient from one slice of the outputs, with index `used` along `dimension`."""
    shape = site.of.shape
    inside = ", ".join(str(used) if place == dimension else ":" for place in range(len(shape)))
    text = f"only {site.of.name}[{inside}] counts: the sum over the {shape[dimension]} entries"
    text += f" of dimension {dimension} is missing{share_text(share)}"
    return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)


def _one_output(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    entries = ~seen.zero
    if not bool((entries.sum(0) > 1).any()):
        return None
    for kept, word in ((_first_in_column(entries), "first"), (_first_in_column(entries.flip(0)).flip(0), "last")):
        square = kept.shape[0] == kept.shape[1]
        if square and int(kept.sum()) == int(kept.diagonal().sum()):
            continue  # a claimed Jacobian reduced to its diagonal is a missing term
        share = explained_share(seen, seen.numeric.masked_fill(~kept, 0.0))
        if share is not None:
            text = f"each entry of {evidence.wrt.name} gets its gradient from the {word} output that it goes into"
            text += f": the sum over all of them is missing{share_text(share)}"
            return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _one_slice_per_input(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a gradient from the first or last slice that each input enters, if all inputs enter equally many."""
    shape = evidence.of.shape
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
                text = f"each entry of {evidence.wrt.name} gets its gradient from the {word} of the {count} slices of"
                text += f" {evidence.of.name} along dimension {dimension} that it goes into"
                text += f": the sum over all of them is missing{share_text(share)}"
                return Diagnosis(cause=MISSING_BROADCAST_SUM, explanation=text, share=share)
    return None


def _first_in_column(entries: Tensor) -> Tensor:
    """Mask of the first set entry of every column; (m, n)."""
    return entries & (entries.cumsum(0) == 1)
