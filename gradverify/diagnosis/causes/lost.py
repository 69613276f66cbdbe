"""Some entries are claimed to be zero, and all others are right: a path from input to output is left out."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.causes.term import MISSING_TERM
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import listed, part, place

_SEVERAL = 4  # entries that are lost
_LEFT = 4  # and as many that are not, and are right


def lost_paths(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every wrong entry is claimed to be zero, none of the others is wrong, and there are several of both."""
    kept = ~seen.zero & ~seen.wrong
    if bool((seen.wrong & (seen.claimed != 0)).any()) or int(seen.wrong.sum()) < _SEVERAL or int(kept.sum()) < _LEFT:
        return None
    share = share_of(seen, seen.numeric.masked_fill(seen.wrong, 0.0))
    if share is None:
        return None
    count = f"{int(seen.wrong.sum())} of the {int((~seen.zero).sum())} entries that are not zero"
    where = _slices(evidence, seen, Axis.INPUT) or _slices(evidence, seen, Axis.OUTPUT)
    text = f"analytic = 0 in {count}{where}, and right in the others: part of the derivative is left out{part(share)}"
    return Diagnosis(cause=MISSING_TERM, explanation=text, share=share)


def _slices(evidence: Evidence, seen: Seen, axis: Axis) -> str:
    """Return ", those by x[:, 4:8]" where all entries of such elements are lost, and no others."""
    across = 1 - axis.value
    wrong, kept = seen.wrong.any(across), (~seen.zero & ~seen.wrong).any(across)
    if bool((wrong & kept).any()):
        return ""
    block, word = side(evidence, axis), "by" if axis is Axis.INPUT else "of"
    return f", those {word} {_box(block, wrong, wrong | kept) or _places(block, wrong)}"


def _box(block: Block, wrong: Tensor, live: Tensor) -> str:
    """Return the indices along one dimension, in a row or in step, of the wrong elements and no other, else ""."""
    places, alive = wrong.reshape(block.shape), live.reshape(block.shape)
    for dimension, size in enumerate(block.shape):
        others = tuple(other for other in range(len(block.shape)) if other != dimension)
        hit = (places.any(others) if others else places).nonzero().flatten().tolist()
        start, stop = hit[0], hit[-1] + 1
        inside = torch.zeros_like(places)
        inside.narrow(dimension, start, stop - start).fill_(True)
        if stop - start < size and torch.equal(inside & alive, places):
            index = [":"] * len(block.shape)
            index[dimension] = f"{start or ''}:{stop if stop < size else ''}"
            return f"{block.name}[{', '.join(index)}]"
        step = next((step for step in range(2, size // 2 + 1) if _is_every(step, dimension, places, alive)), None)
        if step is not None:
            index = [":"] * len(block.shape)
            index[dimension] = f"{start % step or ''}::{step}"
            return f"{block.name}[{', '.join(index)}]"
    return ""


def _is_every(step: int, dimension: int, places: Tensor, alive: Tensor) -> bool:
    """Tell whether the wrong elements are those of every slice that far from the first, and no others."""
    index = torch.arange(places.shape[dimension], device=places.device)
    at = index.view([-1 if other == dimension else 1 for other in range(places.dim())]) % step
    return torch.equal((at == at.expand_as(places)[places][0]) & alive, places)


def _places(block: Block, wrong: Tensor) -> str:
    return listed([place(block, at) for at in wrong.nonzero().flatten().tolist()])
