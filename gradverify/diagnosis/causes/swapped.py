"""Swapped tensors: gradients returned for the wrong input, or cotangents taken from the wrong output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import BlockEntries, block_entries, explained_share
from gradverify.diagnosis.naming.tensors import name_of, numbers_of, slice_of
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import element_name, listed, share_text
from gradverify.evidence import Diagnosis, Evidence, WrongBlock

_BlockIndex = tuple[slice, slice]  # rows and columns of a block in the whole Jacobian

SWAPPED_INPUTS, SWAPPED_OUTPUTS = "swapped-inputs", "swapped-outputs"


def swapped_inputs(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect an input with the gradient of another one, which in turn has the gradient of a third or of the first."""
    del seen
    found = _swapped_with(evidence, Axis.INPUT, evidence.wrt.tensor)
    if found is None:
        return None
    return as_swapped_inputs(evidence, *found)


def as_swapped_inputs(site: WrongBlock, other: int, share: float) -> Diagnosis:
    """Return the diagnosis of an input with the gradient of the input tensor `other`."""
    blocks = site.inputs
    text = f"analytic by {name_of(blocks, site.wrt.tensor)} is numeric by {name_of(blocks, other)}"
    text += f": the gradients are returned in the wrong order{share_text(share)}"
    return Diagnosis(cause=SWAPPED_INPUTS, explanation=text, share=share)


def swapped_outputs(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect an output with the rows of another one, which has wrong rows in turn; or two with some rows exchanged."""
    del seen
    found = _swapped_with(evidence, Axis.OUTPUT, evidence.of.tensor)
    return _swapped_rows(evidence) if found is None else as_swapped_outputs(evidence, *found)


def as_swapped_outputs(site: WrongBlock, other: int, share: float) -> Diagnosis:
    """Return the diagnosis of an output with the rows of the output tensor `other`."""
    blocks = site.outputs
    text = f"analytic of {name_of(blocks, site.of.tensor)} is numeric of {name_of(blocks, other)}"
    text += f": the cotangents are taken in the wrong order{share_text(share)}"
    return Diagnosis(cause=SWAPPED_OUTPUTS, explanation=text, share=share)


def _swapped_rows(evidence: Evidence) -> Diagnosis | None:
    """Detect two outputs of equal shape with some rows exchanged between their blocks."""
    of, whole, columns = evidence.of, evidence.jacobians, evidence.wrt.coordinates
    candidates = (
        block
        for block in whole.outputs
        if block.tensor != of.tensor and (block.shape, block.step) == (of.shape, of.step)
    )
    for other in candidates if of.step == 1 else ():
        this_index, other_index = (of.coordinates, columns), (other.coordinates, columns)
        rows = whole.wrong[this_index].any(1) | whole.wrong[other_index].any(1)
        shares = [
            _share_of_rows(evidence, this_index, other_index, rows),
            _share_of_rows(evidence, other_index, this_index, rows),
        ]
        if None not in shares:
            share = min(share for share in shares if share is not None)
            return _rows_diagnosis(evidence, other, rows, share)
    return None


def _rows_diagnosis(evidence: Evidence, other: Block, rows: Tensor, share: float) -> Diagnosis:
    """Return the diagnosis of an output with some rows exchanged, (m,) bool, in the block of one input."""
    of, positions = evidence.of, rows.nonzero().flatten().tolist()
    text = f"analytic of {of.name} by {evidence.wrt.name} is numeric of {other.name}"
    if len(positions) < len(rows):
        text += f" in {len(positions)} of {len(rows)} entries, {listed([element_name(of, row) for row in positions])}"
    text += f": there the cotangents are taken in the wrong order{share_text(share)}"
    return Diagnosis(cause=SWAPPED_OUTPUTS, explanation=text, share=share)


def _share_of_rows(evidence: Evidence, block: _BlockIndex, source: _BlockIndex, rows: Tensor) -> float | None:
    """Return the share of the error of `block` explained by `rows` of `source`; None if too small or without error."""
    whole = evidence.jacobians
    seen = block_entries(
        evidence.backward, whole.claimed[block], whole.numeric[block], whole.bar[block], whole.wrong[block]
    )
    if seen is None:
        return None
    return explained_share(seen, torch.where(rows.unsqueeze(1), whole.numeric[source], whole.numeric[block]))


def _swapped_with(evidence: Evidence, axis: Axis, tensor: int) -> tuple[int, float] | None:
    """Return the source of `tensor` and the share, as `_source` does; None if that source has the right derivative."""
    source = _source(evidence, axis, tensor)
    return source if source is not None and _source(evidence, axis, source[0]) is not None else None


def _source(evidence: Evidence, axis: Axis, tensor: int) -> tuple[int, float] | None:
    """Return the tensor whose derivative is claimed for `tensor`, and the share of the error that it explains."""
    whole = evidence.jacobians
    blocks = _blocks(evidence, axis)
    if len(numbers_of(blocks)) < 2:
        return None
    index = _block_index(axis, slice_of(blocks, tensor))
    seen = block_entries(
        evidence.backward, whole.claimed[index], whole.numeric[index], whole.bar[index], whole.wrong[index]
    )
    for other in numbers_of(blocks) if seen is not None else ():
        candidate = whole.numeric[_block_index(axis, slice_of(blocks, other))]
        if other != tensor and candidate.shape == whole.numeric[index].shape:
            assert seen is not None
            share = explained_share(seen, candidate)
            if share is not None:
                return other, share
    return None


def _blocks(evidence: Evidence, axis: Axis) -> Sequence[Block]:
    return evidence.jacobians.inputs if axis is Axis.INPUT else evidence.jacobians.outputs


def _block_index(axis: Axis, coordinates: slice) -> tuple[slice, slice]:
    return (slice(None), coordinates) if axis is Axis.INPUT else (coordinates, slice(None))
