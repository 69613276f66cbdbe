"""Backward sums along another dimension than forward does, or along one more."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.causes.term import rank_of

WRONG_AXIS = "wrong-axis"
_FILLED = (
    0.5  # of the entries that ties leave have to be there, for these to say where they are; of a triangle, half are
)
_SUMS = 3  # rows or columns that a sum has to reach
_LARGEST = 256  # rows and columns of a matrix whose rank is asked
_CHANCE = 100  # to one, at least, against entries that lie so by accident
_ENTRIES = 8  # of which so many are reckoned with


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ties:
    """Dimensions of the input whose place is that along a dimension of the output, in every entry there is."""

    of_input: dict[int, int]  # dimension of the input -> dimension of the output

    @property
    def dimensions(self) -> set[int]:
        """Those of the input."""
        return set(self.of_input)


def wrong_axis(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The entries there are lie along other dimensions than those there should be."""
    numeric, claimed = _ties(evidence, ~seen.zero), _ties(evidence, (seen.claimed != 0) & ~seen.left_out)
    if numeric is None or claimed is None or numeric == claimed:
        return None
    extra, lost = numeric.dimensions - claimed.dimensions, claimed.dimensions - numeric.dimensions
    name = evidence.wrt.name
    if not extra:
        return None  # what is missing has other names
    if lost:
        text = f"elements go together along {_named(lost)} of {name}, and backward sums along {_named(extra)}"
    elif _is_of_few_sums(evidence, seen, numeric, claimed):
        text = f"backward sums along {_named(extra)} of {name} too, where every place has outputs of its own"
    else:
        return None
    return Diagnosis(cause=WRONG_AXIS, explanation=text, share=1.0)


def _ties(evidence: Evidence, entries: Tensor) -> _Ties | None:
    """Return what ties the entries (m, n) together; None where there is more to say of where they are."""
    rows, columns = entries.nonzero(as_tuple=True)
    if not len(rows):
        return None
    of, wrt = evidence.of.shape, evidence.wrt.shape
    outputs, inputs = (
        torch.unravel_index(each, shape) if shape else () for each, shape in ((rows, of), (columns, wrt))
    )
    found: dict[int, int] = {}
    room = int(entries.any(1).sum()) * int(entries.any(0).sum())
    for mine, size in enumerate(wrt):
        for other, length in enumerate(of):
            if size != length or size ** min(len(rows), _ENTRIES) < _CHANCE or other in found.values():
                continue
            if torch.equal(inputs[mine], outputs[other]):
                found[mine] = other
                room //= size
                break
    return _Ties(of_input=found) if len(rows) >= _FILLED * room else None


def _is_of_few_sums(evidence: Evidence, seen: Seen, numeric: _Ties, claimed: _Ties) -> bool:
    """Tell whether what is claimed between elements that have nothing to do with each other is of low rank.

    Looked at are the outputs at the first place along all ties, and the inputs elsewhere along those that are not kept.
    """
    count, length = seen.claimed.shape
    outputs = torch.unravel_index(torch.arange(count, device=evidence.device), evidence.of.shape)
    inputs = torch.unravel_index(torch.arange(length, device=evidence.device), evidence.wrt.shape)
    rows, columns = (torch.ones_like(places[0], dtype=torch.bool) for places in (outputs, inputs))
    apart = torch.zeros_like(columns)
    for mine, other in numeric.of_input.items():
        rows &= outputs[other] == 0
        if mine in claimed.of_input:
            columns &= inputs[mine] == 0
        else:
            apart |= inputs[mine] != 0
    between = seen.claimed[rows][:, columns & apart]
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    rank = _rank(between)
    few = 0 < rank < min(between.shape) and rank * _SUMS <= max(between.shape)
    return few and _rank(error) > 1  # else it is a term of its own


def _rank(matrix: Tensor) -> int:
    """Return the rank but for rounding, of the first rows and columns."""
    return rank_of(torch.linalg.svdvals(matrix[:_LARGEST, :_LARGEST]))


def _named(dimensions: set[int]) -> str:
    ordered = [str(dimension) for dimension in sorted(dimensions)]
    return f"dimension{'s' if len(ordered) > 1 else ''} {' and '.join(ordered)}"
