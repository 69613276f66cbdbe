"""Gradients handed to the wrong input, cotangents taken from the wrong output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen, see, share_of
from gradverify.diagnosis.naming.tensors import name_of, numbers_of, places_of
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import listed, part, place

_Place = tuple[slice, slice]  # rows and columns of a block

SWAPPED_INPUTS, SWAPPED_OUTPUTS = "swapped-inputs", "swapped-outputs"


def swapped_inputs(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """This input is given another's gradient, which in turn is given yet another's."""
    del seen
    found = _taken_from(evidence, Axis.INPUT, evidence.wrt.tensor)
    if found is None:
        return None
    return inputs_from(evidence, *found)


def inputs_from(site: Site, other: int, share: float) -> Diagnosis:
    """Return the diagnosis of an input that is given another's gradient."""
    blocks = site.inputs
    text = f"analytic by {name_of(blocks, site.wrt.tensor)} is numeric by {name_of(blocks, other)}"
    text += f": the gradients are returned in the wrong order{part(share)}"
    return Diagnosis(cause=SWAPPED_INPUTS, explanation=text, share=share)


def swapped_outputs(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """This output's cotangent is used as another's, whose own is used as yet another's."""
    del seen
    found = _taken_from(evidence, Axis.OUTPUT, evidence.of.tensor)
    return _outputs_in_part(evidence) if found is None else outputs_from(evidence, *found)


def outputs_from(site: Site, other: int, share: float) -> Diagnosis:
    """Return the diagnosis of an output whose cotangent is used for another."""
    blocks = site.outputs
    text = f"analytic of {name_of(blocks, site.of.tensor)} is numeric of {name_of(blocks, other)}"
    text += f": the cotangents are taken in the wrong order{part(share)}"
    return Diagnosis(cause=SWAPPED_OUTPUTS, explanation=text, share=share)


def _outputs_in_part(evidence: Evidence) -> Diagnosis | None:
    """Some rows of this output's block are another's, and the same rows of that other's are this one's."""
    of, whole, columns = evidence.of, evidence.whole, evidence.wrt.coordinates
    mates = (
        each for each in whole.outputs if each.tensor != of.tensor and (each.shape, each.step) == (of.shape, of.step)
    )
    for other in mates if of.step == 1 else ():
        mine, theirs = (of.coordinates, columns), (other.coordinates, columns)
        rows = whole.wrong[mine].any(1) | whole.wrong[theirs].any(1)
        shares = [_share_with(evidence, mine, theirs, rows), _share_with(evidence, theirs, mine, rows)]
        if None not in shares:
            share = min(share for share in shares if share is not None)
            return _as_part(evidence, other, rows, share)
    return None


def _as_part(evidence: Evidence, other: Block, rows: Tensor, share: float) -> Diagnosis:
    """Return the diagnosis of an output of which some rows, (m,) bool, are exchanged by one input."""
    of, at = evidence.of, rows.nonzero().flatten().tolist()
    text = f"analytic of {of.name} by {evidence.wrt.name} is numeric of {other.name}"
    if len(at) < len(rows):
        text += f" in {len(at)} of {len(rows)} entries, {listed([place(of, row) for row in at])}"
    text += f": there the cotangents are taken in the wrong order{part(share)}"
    return Diagnosis(cause=SWAPPED_OUTPUTS, explanation=text, share=share)


def _share_with(evidence: Evidence, mine: _Place, theirs: _Place, rows: Tensor) -> float | None:
    """Return the share of the error of one block that another's rows explain; None where it has none, or not enough."""
    whole = evidence.whole
    seen = see(evidence.backward, whole.claimed[mine], whole.numeric[mine], whole.bar[mine], whole.wrong[mine])
    if seen is None:
        return None
    return share_of(seen, torch.where(rows.unsqueeze(1), whole.numeric[theirs], whole.numeric[mine]))


def _taken_from(evidence: Evidence, axis: Axis, mine: int) -> tuple[int, float] | None:
    """Return the tensor whose derivative is claimed for mine, if its own place was taken too."""
    found = _source(evidence, axis, mine)
    return found if found is not None and _source(evidence, axis, found[0]) is not None else None


def _source(evidence: Evidence, axis: Axis, mine: int) -> tuple[int, float] | None:
    whole = evidence.whole
    blocks = _blocks(evidence, axis)
    if len(numbers_of(blocks)) < 2:
        return None
    place = _along(axis, places_of(blocks, mine))
    seen = see(evidence.backward, whole.claimed[place], whole.numeric[place], whole.bar[place], whole.wrong[place])
    for other in numbers_of(blocks) if seen is not None else ():
        theirs = whole.numeric[_along(axis, places_of(blocks, other))]
        if other != mine and theirs.shape == whole.numeric[place].shape:
            assert seen is not None
            share = share_of(seen, theirs)
            if share is not None:
                return other, share
    return None


def _blocks(evidence: Evidence, axis: Axis) -> Sequence[Block]:
    return evidence.whole.inputs if axis is Axis.INPUT else evidence.whole.outputs


def _along(axis: Axis, places: slice) -> tuple[slice, slice]:
    return (slice(None), places) if axis is Axis.INPUT else (places, slice(None))
