"""Errors confined to a few elements of a tensor, or to a few entries."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.patterns import Part, agrees, columns, of_inputs, of_outputs, rest, rows
from gradverify.core.whole.sums import Asked, Summed
from gradverify.diagnosis.block.relation import named
from gradverify.diagnosis.causes.single import FEW, RIGHT, SINGLE_ELEMENTS
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import differ, listed, place
from gradverify.diagnosis.sums.look import Look
from gradverify.diagnosis.sums.whole import ratio

_SAME = 1e-3  # of the error: largest residual of a factor


def few_elements(look: Look) -> Diagnosis | None:
    """Diagnose an error in at most three inputs, or outputs, whose entries are wrong by one factor each."""
    return _elements(look.asked, Axis.INPUT) or _elements(look.asked, Axis.OUTPUT)


def few_entries(projections: Asked) -> Diagnosis | None:
    """Diagnose an error in at most three entries: without them, the projections agree."""
    found = projections.sums.found
    of, wrt = projections.sums.of, projections.sums.wrt
    count = len(found.error)
    if not 1 <= count <= FEW or found.total != count:
        return None
    error = (found.analytic - found.numeric).to(projections.sums.device)
    given = projections.cotangents[:, of.coordinates][:, found.output]  # (K, e)
    tangents = projections.directions[:, wrt.coordinates][:, found.input]  # (L, e)
    explained = (given * error) @ tangents.T
    numeric = Summed(value=projections.numeric.value + explained, bar=projections.numeric.bar)
    if not agrees(projections, Part(claimed=projections.claimed, numeric=numeric)):
        return None
    words = [
        f"{place(of, row)} by {place(wrt, column)}"
        for row, column in sorted(zip(found.output.tolist(), found.input.tolist(), strict=True))
    ]
    bound = "" if projections.sums.all_places else "at least "  # projections may miss a small error
    text = f"{bound}{differ(count, total(of.shape) * total(wrt.shape), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _elements(projections: Asked, axis: Axis) -> Diagnosis | None:
    """Diagnose an error in at most three elements of the input or output along one axis."""
    found, block = projections.sums.found, side(projections.sums, axis)
    places = (found.inputs if axis is Axis.INPUT else found.outputs).tolist()
    if not 1 <= len(places) <= FEW or total(block.shape) < (1 + RIGHT) * len(places):
        return None
    wrong = torch.zeros(total(block.shape), dtype=torch.bool, device=projections.sums.device)
    wrong[places] = True
    part = of_inputs(projections, wrong) if axis is Axis.INPUT else of_outputs(projections, wrong)
    if not agrees(projections, rest(projections, part)):
        return None
    factors = [_factor_of(projections, axis, at) for at in places]
    if "" in factors:
        return None
    words = [f"{place(block, at)}, where analytic = {each}" for at, each in zip(places, factors, strict=True)]
    noun = "elements" if axis is Axis.INPUT else "outputs"
    text = f"{differ(len(places), total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _factor_of(projections: Asked, axis: Axis, at: int) -> str:
    """Return the factor on all entries of one element in words, "" if there is no single factor."""
    if axis is Axis.INPUT:
        (column,) = columns(projections, [at])
        return _factor(column.claimed, column.sums, column.bar)
    (row,) = rows(projections, [at])
    return _factor(row.claimed, row.numeric, row.bar)


def _factor(claimed: Tensor, numeric: Tensor, bar: Tensor) -> str:
    """Return the factor claimed / numeric of some projections in words, "" if there is no single factor."""
    found = ratio(Part(claimed=claimed, numeric=Summed(value=numeric, bar=bar)))
    if found is None or not bool((numeric != 0).all()):
        return ""
    slack = torch.minimum(10 * bar, 0.1 * (claimed - numeric).abs())
    if bool(((claimed - found.value * numeric).abs() > slack + _SAME * (claimed - numeric).abs()).any()):
        return ""
    return named(found)[1] if found.value else "0"
