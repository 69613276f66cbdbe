"""Missing path from input to output: some claimed entries are zero, and all others are right."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.causes.missing_term import MISSING_TERM
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import element_name, listed, share_text
from gradverify.evidence import Diagnosis, Evidence

_MIN_LOST = 4  # entries claimed to be zero
_MIN_RIGHT = 4  # nonzero entries that are right


def missing_path(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect several entries that are wrongly claimed to be zero, beside several right ones."""
    kept = ~seen.zero & ~seen.wrong
    if (
        bool((seen.wrong & (seen.claimed != 0)).any())
        or int(seen.wrong.sum()) < _MIN_LOST
        or int(kept.sum()) < _MIN_RIGHT
    ):
        return None
    share = explained_share(seen, seen.numeric.masked_fill(seen.wrong, 0.0))
    if share is None:
        return None
    count = f"{int(seen.wrong.sum())} of the {int((~seen.zero).sum())} entries that are not zero"
    location = _location(evidence, seen, Axis.INPUT) or _location(evidence, seen, Axis.OUTPUT)
    text = f"analytic = 0 in {count}{location}, and right in the others:"
    text += f" part of the derivative is left out{share_text(share)}"
    return Diagnosis(cause=MISSING_TERM, explanation=text, share=share)


def _location(evidence: Evidence, seen: BlockEntries, axis: Axis) -> str:
    """Return ", those by x[:, 4:8]" if exactly the nonzero entries of these elements are lost, else ""."""
    across = 1 - axis.value
    wrong, kept = seen.wrong.any(across), (~seen.zero & ~seen.wrong).any(across)
    if bool((wrong & kept).any()):
        return ""
    block, preposition = block_along(evidence, axis), "by" if axis is Axis.INPUT else "of"
    return f", those {preposition} {_index_text(block, wrong, wrong | kept) or _element_names(block, wrong)}"


def _index_text(block: Block, wrong: Tensor, relevant: Tensor) -> str:
    """Return a slice along one dimension, with or without a step, that holds exactly the wrong elements; else ""."""
    wrong_entries, relevant_entries = wrong.reshape(block.shape), relevant.reshape(block.shape)
    for dimension, size in enumerate(block.shape):
        others = tuple(other for other in range(len(block.shape)) if other != dimension)
        hit = (wrong_entries.any(others) if others else wrong_entries).nonzero().flatten().tolist()
        start, stop = hit[0], hit[-1] + 1
        inside = torch.zeros_like(wrong_entries)
        inside.narrow(dimension, start, stop - start).fill_(True)
        if stop - start < size and torch.equal(inside & relevant_entries, wrong_entries):
            index = [":"] * len(block.shape)
            index[dimension] = f"{start or ''}:{stop if stop < size else ''}"
            return f"{block.name}[{', '.join(index)}]"
        step = next(
            (step for step in range(2, size // 2 + 1) if _is_every(step, dimension, wrong_entries, relevant_entries)),
            None,
        )
        if step is not None:
            index = [":"] * len(block.shape)
            index[dimension] = f"{start % step or ''}::{step}"
            return f"{block.name}[{', '.join(index)}]"
    return ""


def _is_every(step: int, dimension: int, wrong: Tensor, relevant: Tensor) -> bool:
    """True if the wrong elements are exactly the relevant ones at every `step`-th index from the first."""
    index = torch.arange(wrong.shape[dimension], device=wrong.device)
    remainder = index.view([-1 if other == dimension else 1 for other in range(wrong.dim())]) % step
    return torch.equal((remainder == remainder.expand_as(wrong)[wrong][0]) & relevant, wrong)


def _element_names(block: Block, wrong: Tensor) -> str:
    return listed([element_name(block, at) for at in wrong.nonzero().flatten().tolist()])
