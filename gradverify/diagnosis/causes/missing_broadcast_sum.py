"""Missing sum over broadcast outputs: an input gets the gradient of one output instead of the sum over all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import BlockEntries, Pattern, is_diagonal
from gradverify.diagnosis.block.structure import any_in_slice, index_along
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import RandomProjections
from gradverify.diagnosis.tuning import ALMOST_ALL
from gradverify.evidence import Diagnosis

MISSING_BROADCAST_SUM = "missing-broadcast-sum"


def missing_broadcast_sum(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that keeps one slice of the outputs, or one output per input, and is zero elsewhere."""
    if bool((seen.wrong & (seen.claimed != 0)).any()):
        return None
    return first(
        seen.explained(seen.numeric.masked_fill(~kept, 0.0), MISSING_BROADCAST_SUM, text) for kept, text in _kept(seen)
    )


def _kept(seen: BlockEntries) -> Iterator[tuple[Tensor, str]]:
    """Yield masks of the entries that backward may keep, which broadcast to (m, n), and the explanations."""
    of, nonzero = seen.block.of, seen.nonzero
    entered = [  # per dimension, the index of each output (m,), and the slices that each input enters (slices, n)
        (index_along(of.shape, dimension, seen.block.device), any_in_slice(nonzero, of.shape, dimension))
        for dimension in range(len(of.shape))
    ]
    for dimension, (index, slices) in enumerate(entered):
        used = torch.unique(index[(seen.claimed != 0).any(1)]).tolist()
        counts = slices.sum(0)
        if len(used) == 1 and int((counts > 1).sum()) >= ALMOST_ALL * int((counts > 0).sum()):
            yield (index == used[0]).unsqueeze(1), one_slice_text(of, dimension, used[0])
    gets = f"each entry of {seen.block.wrt.name} gets its gradient from the"
    missing = "that it goes into: the sum over all of them is missing"
    for kept, word in _first_and_last(nonzero):
        if kept.shape[0] != kept.shape[1] or not is_diagonal(kept):  # only the diagonal: a missing term
            yield kept, f"{gets} {word} output {missing}"
    for dimension, (index, slices) in enumerate(entered):
        counts = slices.sum(0)
        count = int(counts.max())
        if count > 1 and bool((counts[counts > 0] == count).all()):  # all inputs enter equally many
            for kept, word in _first_and_last(slices):
                where = f"{word} of the {count} slices of {of.name} along dimension {dimension}"
                yield kept[index], f"{gets} {where} {missing}"


def one_slice_text(of: Block, dimension: int, used: int) -> str:
    """Return the explanation of a gradient from one slice of the output, with index `used` along `dimension`."""
    inside = ", ".join(str(used) if place == dimension else ":" for place in range(len(of.shape)))
    text = f"only {of.name}[{inside}] counts: the sum over the {of.shape[dimension]} entries"
    return f"{text} of dimension {dimension} is missing"


def _first_and_last(entries: Tensor) -> Iterator[tuple[Tensor, str]]:
    """Yield the masks (m, n) of the first and of the last set entry of every column, each with its word."""
    yield entries & (entries.cumsum(0) == 1), "first"
    backwards = entries.flip(0)
    yield (backwards & (backwards.cumsum(0) == 1)).flip(0), "last"


def missing_broadcast_sum_in_sums(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose claims that are right in the first, or last, slice of the output and zero in all others."""
    of = projections.block.of
    for dimension, size in enumerate(of.shape):
        index = index_along(of.shape, dimension, projections.block.device)
        for kept in (0, size - 1) if size > 1 else ():
            share = projections.agrees(Pattern(by_row=(index == kept).to(projections.claimed.dtype)))
            if share is not None and _reaches(projections, index):
                return diagnosed(MISSING_BROADCAST_SUM, one_slice_text(of, dimension, kept), share)
    return None


def _reaches(projections: RandomProjections, index: Tensor) -> bool:
    """True if almost all sampled inputs contribute to several slices of the output; `index` (m,) of each output."""
    at = projections.block.of.coordinates
    measured = [column.entries for column in projections.columns if column.entries is not None]
    reached = [index[entries.value[at].abs() > entries.bar[at]] for entries in measured]
    nonzero = [slices for slices in reached if len(slices)]
    return sum(int(slices.min()) < int(slices.max()) for slices in nonzero) >= ALMOST_ALL * len(nonzero) > 0
