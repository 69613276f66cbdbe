"""Single wrong entries, or all entries of a few elements, without a common pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.coordinates import total
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.entries import BlockEntries, are_multiples, typical_ratio
from gradverify.diagnosis.block.relation import factor_in_words
from gradverify.diagnosis.naming.variables import Axis, block_along, broadcast_along
from gradverify.diagnosis.naming.wording import NAMED, differ_text, element_name, first, listed
from gradverify.diagnosis.projections.sums import RandomProjections, holds, line, sums_over_lines
from gradverify.diagnosis.tuning import ALMOST_ALL
from gradverify.evidence import Diagnosis, WrongBlock

SINGLE_ELEMENTS = "single-elements"
_RIGHT_PER_WRONG = 3  # right ones required per wrong one; beside a single wrong entry, one is enough


def single_elements(seen: BlockEntries) -> Diagnosis | None:
    """Detect at most three wrong entries beside many right ones, or at most three elements with all entries wrong."""
    return _wrong_entries(seen) or first(_wrong_elements(seen, axis) for axis in (Axis.INPUT, Axis.OUTPUT))


def few_wrong(seen: BlockEntries, axis: Axis, limit: int) -> Tensor | None:
    """Mask (k,) of the elements with wrong entries, if these are almost all of their entries, and others are right.

    Returns None if more than `limit` elements are wrong, or too few others are right.
    """
    nonzero, wrong = (seen.claimed != 0) | seen.nonzero, seen.wrong.any(axis.across)
    count, right = int(wrong.sum()), int((nonzero.any(axis.across) & ~wrong).sum())
    if count > limit or right < (SEVERAL if count == 1 else _RIGHT_PER_WRONG * count):
        return None
    mostly = int(seen.wrong.sum()) >= ALMOST_ALL * int((nonzero & broadcast_along(axis, wrong)).sum())
    return wrong if mostly else None


def _wrong_entries(seen: BlockEntries) -> Diagnosis | None:
    count = int(seen.wrong.sum())
    right = int((seen.nonzero & ~seen.wrong).sum())
    if count > NAMED or right < (1 if count == 1 else _RIGHT_PER_WRONG * count):
        return None
    return _listed_entries(seen.block, seen.wrong.nonzero().tolist())


def _listed_entries(block: WrongBlock, wrong: Sequence[Sequence[int]], bound: str = "") -> Diagnosis:
    """Return the diagnosis that only these entries are wrong, (row, column) each."""
    words = [f"{element_name(block.of, row)} by {element_name(block.wrt, column)}" for row, column in wrong]
    count = differ_text(len(wrong), total(block.of.shape) * total(block.wrt.shape), "entries")
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=f"{bound}{count}: {listed(words)}", share=1.0)


def _wrong_elements(seen: BlockEntries, axis: Axis) -> Diagnosis | None:
    """Detect a few inputs with all entries wrong, or a few outputs with all entries wrong by one factor each."""
    wrong = few_wrong(seen, axis, NAMED)
    share = None if wrong is None else seen.share_inside(broadcast_along(axis, wrong))
    if wrong is None or share is None:
        return None
    positions = wrong.nonzero().flatten().tolist()
    places = torch.arange(len(wrong), device=wrong.device)
    inside = [broadcast_along(axis, places == at) & seen.wrong for at in positions]
    factors = [_factor_text(seen.claimed[at], seen.numeric[at], seen.slack[at]) for at in inside]
    if axis is Axis.OUTPUT and "" in factors:
        return None
    return _listed_elements(seen.block, axis, positions, factors, share)


def _listed_elements(
    block: WrongBlock, axis: Axis, positions: Sequence[int], factors: Sequence[str], share: float
) -> Diagnosis:
    """Return the diagnosis that all entries of these elements are wrong, each by its factor in words, "" if unknown."""
    tensor = block_along(block, axis)
    words = [
        f"{element_name(tensor, at)}{f', where analytic = {factor}' if factor else ''}"
        for at, factor in zip(positions, factors, strict=True)
    ]
    text = f"{differ_text(len(positions), total(tensor.shape), axis.noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=share)


def _factor_text(claimed: Tensor, numeric: Tensor, slack: Tensor) -> str:
    """Return the factor of all wrong claims in words, "" if they have none in common."""
    ratio = typical_ratio(claimed, numeric, slack)
    if ratio is None or not are_multiples(claimed, numeric, slack, ratio.value):
        return ""
    return factor_in_words(ratio)[1]


def few_entries(projections: RandomProjections, most: int = NAMED) -> Diagnosis | None:
    """Diagnose an error in at most three entries: without them, the projections agree."""
    block, found = projections.block, projections.block.wrong_entries
    count = len(found.error)
    if not 1 <= count <= most or found.total != count:
        return None
    error = (found.analytic - found.numeric).to(block.device)
    weights, displacements = projections.weights[:, found.output], projections.displacements[:, found.input]
    explained = (weights * error) @ displacements.T  # (K, L)
    if not holds(projections, replace(projections.numeric, value=projections.numeric.value + explained)):
        return None
    bound = "" if block.wrong_places_complete else "at least "  # projections may miss a small error
    return _listed_entries(block, sorted(zip(found.output.tolist(), found.input.tolist(), strict=True)), bound)


def few_elements(projections: RandomProjections, counts: range = range(2, NAMED + 1)) -> Diagnosis | None:
    """Diagnose an error in so many inputs, or outputs, whose entries are wrong by one factor each.

    Each input costs 6 forwards or more, and each output a vjp.
    """
    return first(_along(projections, axis, counts) for axis in (Axis.INPUT, Axis.OUTPUT))


def _along(projections: RandomProjections, axis: Axis, counts: range) -> Diagnosis | None:
    """Diagnose an error in so many elements of the input or output along one axis, beside others that are right."""
    found, block = projections.block.wrong_entries, block_along(projections.block, axis)
    places = (found.inputs if axis is Axis.INPUT else found.outputs).tolist()
    if len(places) not in counts or total(block.shape) < (1 + _RIGHT_PER_WRONG) * len(places):
        return None
    found_lines = [line(projections, axis, place) for place in places]
    part = sums_over_lines(projections, axis, found_lines)
    others_are_zero = bool(((projections.claimed - part.claimed).abs() <= projections.rounding).all())
    if others_are_zero or not part.is_right_outside():
        return None
    factors = [_factor_text(each.claimed, each.numeric.value, BAR_FACTOR * each.numeric.bar) for each in found_lines]
    return None if "" in factors else _listed_elements(projections.block, axis, places, factors, 1.0)
