"""Swapped tensors: gradients returned for the wrong input, or cotangents taken from the wrong output."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import Pattern, entries_of, explained_share
from gradverify.diagnosis.naming.variables import Axis, all_of, name_of, numbers_of, slice_of, whole_tensor
from gradverify.diagnosis.naming.wording import diagnosed, element_name, listed
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis, Evidence, part_of

SWAPPED_INPUTS, SWAPPED_OUTPUTS = "swapped-inputs", "swapped-outputs"


def swapped_inputs(compared: ComparedBlock) -> Diagnosis | None:
    """Detect an input with the gradient of another one, which in turn has the gradient of a third or of the first."""
    site = compared.block
    found = _swapped_with(compared, Axis.INPUT, site.wrt.tensor)
    if found is None:
        return None
    other, share = found
    text = f"analytic by {name_of(site.inputs, site.wrt.tensor)} is numeric by {name_of(site.inputs, other)}"
    return diagnosed(SWAPPED_INPUTS, f"{text}: the gradients are returned in the wrong order", share)


def swapped_outputs(compared: ComparedBlock) -> Diagnosis | None:
    """Detect an output with the rows of another one, which has wrong rows in turn; or two with some rows exchanged."""
    site = compared.block
    found = _swapped_with(compared, Axis.OUTPUT, site.of.tensor)
    if found is None:
        return _swapped_rows(site) if isinstance(site, Evidence) else None
    other, share = found
    text = f"analytic of {name_of(site.outputs, site.of.tensor)} is numeric of {name_of(site.outputs, other)}"
    return diagnosed(SWAPPED_OUTPUTS, f"{text}: the cotangents are taken in the wrong order", share)


def _swapped_rows(evidence: Evidence) -> Diagnosis | None:
    """Detect two outputs of equal shape with some rows exchanged between their blocks."""
    of, whole, columns = evidence.of, evidence.jacobians, evidence.wrt.coordinates
    for other in whole.outputs if of.step == 1 else ():
        if other.tensor == of.tensor or (other.shape, other.step) != (of.shape, of.step):
            continue
        rows = whole.wrong[of.coordinates, columns].any(1) | whole.wrong[other.coordinates, columns].any(1)
        shares = [_share_of_rows(evidence, of, other, rows), _share_of_rows(evidence, other, of, rows)]
        if None in shares:
            continue
        positions = rows.nonzero().flatten().tolist()
        names = listed([element_name(of, row) for row in positions])
        where = f" in {len(positions)} of {len(rows)} entries, {names}" if len(positions) < len(rows) else ""
        text = f"analytic of {of.name} by {evidence.wrt.name} is numeric of {other.name}{where}"
        text = f"{text}: there the cotangents are taken in the wrong order"
        return diagnosed(SWAPPED_OUTPUTS, text, min(share for share in shares if share is not None))
    return None


def _share_of_rows(evidence: Evidence, block: Block, source: Block, rows: Tensor) -> float | None:
    """Return the share of the error of output `block` that `rows` of `source` explain; None if too small."""
    seen = entries_of(part_of(evidence, block, evidence.wrt))
    if seen is None:
        return None
    whole, columns = evidence.jacobians.numeric, evidence.wrt.coordinates
    exchanged = torch.where(rows.unsqueeze(1), whole[source.coordinates, columns], whole[block.coordinates, columns])
    return explained_share(seen, exchanged)


def _swapped_with(compared: ComparedBlock, axis: Axis, tensor: int) -> tuple[int, float] | None:
    """Return the source of `tensor` and the share, as `_source` does; None if that source has the right derivative."""
    source = _source(compared, axis, tensor)
    return source if source is not None and _source(compared, axis, source[0]) is not None else None


def _source(compared: ComparedBlock, axis: Axis, tensor: int) -> tuple[int, float] | None:
    """Return the tensor whose derivative is claimed for `tensor`, and the share of the error that it explains."""
    site = compared.block
    blocks = site.inputs if axis is Axis.INPUT else site.outputs
    kind = {block.tensor: (block.shape, block.step) for block in blocks}
    others = [other for other in numbers_of(blocks) if other != tensor and kind[other] == kind[tensor]]
    if not others:
        return None
    if axis is Axis.INPUT:
        whole = compared.over(all_of(site.outputs), whole_tensor(blocks, tensor))
    else:
        whole = compared.over(whole_tensor(blocks, tensor), all_of(site.inputs))
    for other in others if whole is not None else ():
        assert whole is not None
        place = slice_of(blocks, other)
        coordinates = torch.arange(place.start, place.stop, device=site.device)
        pattern = Pattern(columns=coordinates) if axis is Axis.INPUT else Pattern(rows=coordinates)
        share = whole.agrees(pattern)
        if share is not None:
            return other, share
    return None
