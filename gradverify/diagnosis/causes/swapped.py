"""Gradients handed to the wrong input, cotangents taken from the wrong output."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.core.function.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Seen, see, share_of
from gradverify.diagnosis.naming.tensors import name_of, numbers_of, places_of
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import part

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
    if found is None:
        return None
    return outputs_from(evidence, *found)


def outputs_from(site: Site, other: int, share: float) -> Diagnosis:
    """Return the diagnosis of an output whose cotangent is used for another."""
    blocks = site.outputs
    text = f"analytic of {name_of(blocks, site.of.tensor)} is numeric of {name_of(blocks, other)}"
    text += f": the cotangents are taken in the wrong order{part(share)}"
    return Diagnosis(cause=SWAPPED_OUTPUTS, explanation=text, share=share)


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
