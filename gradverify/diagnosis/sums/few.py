"""A few elements of a tensor, or a few entries, hold the whole error."""

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

_SAME = 1e-3  # of an error: what may be left of it


def few_elements(look: Look) -> Diagnosis | None:
    """All of the error is in at most three elements of a tensor, by one factor each."""
    return _elements(look.asked, Axis.INPUT) or _elements(look.asked, Axis.OUTPUT)


def few_entries(asked: Asked) -> Diagnosis | None:
    """All of the error is in at most three entries."""
    found = asked.sums.found
    of, wrt = asked.sums.of, asked.sums.wrt
    count = len(found.error)
    if not 1 <= count <= FEW or found.total != count:
        return None
    error = (found.analytic - found.numeric).to(asked.sums.device)
    given = asked.cotangents[:, of.coordinates][:, found.output]  # (K, e)
    moves = asked.directions[:, wrt.coordinates][:, found.input]  # (L, e)
    explained = (given * error) @ moves.T
    numeric = Summed(value=asked.numeric.value + explained, bar=asked.numeric.bar)
    if not agrees(asked, Part(claimed=asked.claimed, numeric=numeric)):
        return None
    words = [
        f"{place(of, row)} by {place(wrt, column)}"
        for row, column in sorted(zip(found.output.tolist(), found.input.tolist(), strict=True))
    ]
    more = "" if asked.sums.all_places else "at least "  # which sums are too coarse for
    text = f"{more}{differ(count, total(of.shape) * total(wrt.shape), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _elements(asked: Asked, axis: Axis) -> Diagnosis | None:
    found, block = asked.sums.found, side(asked.sums, axis)
    places = (found.inputs if axis is Axis.INPUT else found.outputs).tolist()
    if not 1 <= len(places) <= FEW or total(block.shape) < (1 + RIGHT) * len(places):
        return None
    wrong = torch.zeros(total(block.shape), dtype=torch.bool, device=asked.sums.device)
    wrong[places] = True
    part = of_inputs(asked, wrong) if axis is Axis.INPUT else of_outputs(asked, wrong)
    if not agrees(asked, rest(asked, part)):
        return None
    said = [_said(asked, axis, at) for at in places]
    if "" in said:
        return None
    words = [f"{place(block, at)}, where analytic = {each}" for at, each in zip(places, said, strict=True)]
    noun = "elements" if axis is Axis.INPUT else "outputs"
    text = f"{differ(len(places), total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _said(asked: Asked, axis: Axis, at: int) -> str:
    """Return the factor of one element's entries in words, "" where there is none."""
    if axis is Axis.INPUT:
        (column,) = columns(asked, [at])
        return _factor(column.claimed, column.sums, column.bar)
    (row,) = rows(asked, [at])
    return _factor(row.claimed, row.numeric, row.bar)


def _factor(claimed: Tensor, numeric: Tensor, bar: Tensor) -> str:
    found = ratio(Part(claimed=claimed, numeric=Summed(value=numeric, bar=bar)))
    if found is None or not bool((numeric != 0).all()):
        return ""
    slack = torch.minimum(10 * bar, 0.1 * (claimed - numeric).abs())
    if bool(((claimed - found.value * numeric).abs() > slack + _SAME * (claimed - numeric).abs()).any()):
        return ""
    return named(found)[1] if found.value else "0"
