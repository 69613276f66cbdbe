"""Swapped tensors: gradients returned for the wrong input, or cotangents taken from the wrong output."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import BlockEntries, Pattern
from gradverify.diagnosis.naming.variables import Axis, all_of, block_along, whole_tensor
from gradverify.diagnosis.naming.wording import diagnosed, element_name, listed
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis

SWAPPED_INPUTS, SWAPPED_OUTPUTS = "swapped-inputs", "swapped-outputs"
_WORDS = {
    Axis.INPUT: (SWAPPED_INPUTS, "analytic by {} is numeric by {}: the gradients are returned in the wrong order"),
    Axis.OUTPUT: (SWAPPED_OUTPUTS, "analytic of {} is numeric of {}: the cotangents are taken in the wrong order"),
}


def swapped(compared: ComparedBlock, axis: Axis) -> Diagnosis | None:
    """Detect an input with the gradient of another one, or an output with its rows; that one has to be wrong too."""
    blocks = compared.block.inputs if axis is Axis.INPUT else compared.block.outputs
    tensors = {block.tensor: whole_tensor(blocks, block.tensor) for block in blocks}
    own = tensors[block_along(compared.block, axis).tensor]
    found = _source(compared, axis, own, tensors.values())
    if found is None or _source(compared, axis, found[0], tensors.values()) is None:
        return None
    cause, text = _WORDS[axis]
    return diagnosed(cause, text.format(own.name, found[0].name), found[1])


def swapped_rows(seen: BlockEntries) -> Diagnosis | None:
    """Detect two outputs of equal shape with some rows exchanged between their blocks."""
    of, wrt = seen.block.of, seen.block.wrt
    for other in seen.block.outputs if of.step == 1 else ():
        alike = other.tensor != of.tensor and (other.shape, other.step) == (of.shape, of.step)
        there = seen.over(other, wrt) if alike else None
        if there is None:
            continue
        rows = seen.wrong.any(1) | there.wrong.any(1)
        here, elsewhere = (torch.arange(block.start, block.stop, device=rows.device) for block in (of, other))
        shares = (
            seen.agrees(Pattern(rows=torch.where(rows, elsewhere, here))),
            there.agrees(Pattern(rows=torch.where(rows, here, elsewhere))),
        )
        if None in shares:
            continue
        positions = rows.nonzero().flatten().tolist()
        names = listed([element_name(of, row) for row in positions])
        where = f" in {len(positions)} of {len(rows)} entries, {names}" if len(positions) < len(rows) else ""
        text = f"analytic of {of.name} by {wrt.name} is numeric of {other.name}{where}"
        text = f"{text}: there the cotangents are taken in the wrong order"
        return diagnosed(SWAPPED_OUTPUTS, text, min(share for share in shares if share is not None))
    return None


def _source(compared: ComparedBlock, axis: Axis, tensor: Block, tensors: Iterable[Block]) -> tuple[Block, float] | None:
    """Return the tensor whose derivative is claimed for `tensor`, and the share of the error that it explains."""
    block, size = compared.block, tensor.stop - tensor.start  # twice as large if complex
    alike = (each for each in tensors if (each.shape, each.stop - each.start) == (tensor.shape, size))
    others = [each for each in alike if each.tensor != tensor.tensor]
    of, wrt = (all_of(block.outputs), tensor) if axis is Axis.INPUT else (tensor, all_of(block.inputs))
    whole = compared.over(of, wrt) if others else None
    if whole is None:
        return None
    for other in others:
        coordinates = torch.arange(other.start, other.stop, device=block.device)
        share = whole.agrees(Pattern(columns=coordinates) if axis is Axis.INPUT else Pattern(rows=coordinates))
        if share is not None:
            return other, share
    return None
