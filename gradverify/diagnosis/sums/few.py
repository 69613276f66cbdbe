"""Errors confined to a few elements of a tensor, or to a few entries."""

from __future__ import annotations

import torch

from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.relation import factor_in_words
from gradverify.diagnosis.causes.single_elements import MAX_WRONG, RIGHT_PER_WRONG, SINGLE_ELEMENTS
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import differ_text, element_name, listed
from gradverify.diagnosis.projections.patterns import (
    ProjectedPart,
    SampledLine,
    agrees,
    columns,
    rows,
    sums_outside,
    sums_over_columns,
    sums_over_rows,
)
from gradverify.diagnosis.projections.sums import RandomProjections
from gradverify.diagnosis.sums.sampled_lines import SampledLines
from gradverify.diagnosis.sums.whole import ratio
from gradverify.evidence import Diagnosis

_SAME = 1e-3  # of the error: largest residual of a factor


def one_element(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose an error in one input, or output, whose entries are wrong by one factor; costs 6 forwards or more."""
    return _elements(projections, range(1, 2))


def few_elements(look: SampledLines) -> Diagnosis | None:
    """Diagnose an error in two or three inputs, or outputs, whose entries are wrong by one factor each."""
    return _elements(look.projections, range(2, MAX_WRONG + 1))


def few_entries(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose an error in at most three entries: without them, the projections agree."""
    found = projections.block.wrong_entries
    of, wrt = projections.block.of, projections.block.wrt
    count = len(found.error)
    if not 1 <= count <= MAX_WRONG or found.total != count:
        return None
    error = (found.analytic - found.numeric).to(projections.block.device)
    given = projections.cotangents[:, of.coordinates][:, found.output]  # (K, e)
    tangents = projections.directions[:, wrt.coordinates][:, found.input]  # (L, e)
    explained = (given * error) @ tangents.T
    numeric = Estimate(value=projections.numeric.value + explained, bar=projections.numeric.bar)
    if not agrees(projections, ProjectedPart(claimed=projections.claimed, numeric=numeric)):
        return None
    words = [
        f"{element_name(of, row)} by {element_name(wrt, column)}"
        for row, column in sorted(zip(found.output.tolist(), found.input.tolist(), strict=True))
    ]
    bound = "" if projections.block.wrong_places_complete else "at least "  # projections may miss a small error
    text = f"{bound}{differ_text(count, total(of.shape) * total(wrt.shape), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _elements(projections: RandomProjections, counts: range) -> Diagnosis | None:
    return _along(projections, Axis.INPUT, counts) or _along(projections, Axis.OUTPUT, counts)


def _along(projections: RandomProjections, axis: Axis, counts: range) -> Diagnosis | None:
    """Diagnose an error in so many elements of the input or output along one axis, beside others that are right."""
    found, block = projections.block.wrong_entries, block_along(projections.block, axis)
    places = (found.inputs if axis is Axis.INPUT else found.outputs).tolist()
    if len(places) not in counts or total(block.shape) < (1 + RIGHT_PER_WRONG) * len(places):
        return None
    lines = (columns if axis is Axis.INPUT else rows)(projections, places)
    part = (sums_over_columns if axis is Axis.INPUT else sums_over_rows)(projections, lines)
    outside = sums_outside(projections, part)
    others_are_zero = bool((outside.claimed.abs() <= projections.rounding).all())
    if others_are_zero or not agrees(projections, outside):
        return None
    factors = list(map(_factor, lines))
    if "" in factors:
        return None
    words = [f"{element_name(block, at)}, where analytic = {each}" for at, each in zip(places, factors, strict=True)]
    noun = "elements" if axis is Axis.INPUT else "outputs"
    text = f"{differ_text(len(places), total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _factor(line: SampledLine) -> str:
    """Return the factor claimed / numeric of all entries of a line in words, "" if there is no single factor."""
    claimed, numeric, bar = line.claimed, line.numeric, line.bar
    found = ratio(ProjectedPart(claimed=claimed, numeric=Estimate(value=numeric, bar=bar)))
    if found is None or not bool((numeric != 0).all()):
        return ""
    slack = torch.minimum(10 * bar, 0.1 * (claimed - numeric).abs())
    if bool(((claimed - found.value * numeric).abs() > slack + _SAME * (claimed - numeric).abs()).any()):
        return ""
    return factor_in_words(found)[1] if found.value else "0"
