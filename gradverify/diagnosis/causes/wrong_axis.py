"""Backward sums along a different dimension than forward, or along an additional one."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.structure import index_along
from gradverify.diagnosis.causes.missing_term import MAX_DENSE, rank_of
from gradverify.diagnosis.naming.wording import dimensions_text
from gradverify.evidence import Diagnosis, Evidence

WRONG_AXIS = "wrong-axis"
_FILLED = 0.5  # of the entries allowed by the matched dimensions have to be nonzero; a triangle fills half of them
_LINES_PER_SUM = 3  # rows or columns per unit of rank: a sum has to spread over several
_MIN_ODDS = 100  # to one: least odds against equal indices in all entries by chance
_MAX_COUNTED = 8  # entries that count for these odds, at most


# Dimensions of the input whose indices are equal to those along a dimension of the output in every nonzero entry.
_Matched = dict[int, int]  # dimension of the input -> dimension of the output


def sum_along_other_dimension(seen: BlockEntries) -> Diagnosis | None:
    """Detect the gradient of a broadcast input that is right in each term, and summed along another dimension.

    Each output then depends on one element of the input, and backward adds its term to another element.
    """
    numeric, claimed = _matched_by_both(seen)
    dims, others = (set(range(len(block.shape))) for block in (seen.block.wrt, seen.block.of))
    if numeric is None or claimed is None or not numeric.keys() == claimed.keys() == dims or numeric == claimed:
        return None
    summed, summed_instead = (sorted(others - set(matched.values())) for matched in (numeric, claimed))
    if summed == summed_instead:
        return None  # dimensions are exchanged
    right, wrong = dimensions_text(summed), dimensions_text(summed_instead)
    term = seen.numeric.sum(1, keepdim=True)
    text = f"backward sums the cotangent of {seen.block.of.name} along {wrong}, and not along {right}"
    return seen.explained(torch.where(seen.claimed != 0, term, 0.0), WRONG_AXIS, text)


def wrong_axis(seen: BlockEntries) -> Diagnosis | None:
    """Detect claimed entries that match other dimensions of input and output than the numeric entries do."""
    numeric, claimed = _matched_by_both(seen)
    if numeric is None or claimed is None or numeric == claimed:
        return None
    extra = _contradicted(seen.block, numeric, seen.claimed != 0) - claimed.keys()
    lost = _contradicted(seen.block, claimed, seen.nonzero) - numeric.keys()
    if not extra:
        return None  # missing entries are reported by other causes
    name, text = seen.block.wrt.name, f"backward sums along {dimensions_text(sorted(extra))}"
    if lost:
        text = f"elements go together along {dimensions_text(sorted(lost))} of {name}, and {text}"
    elif _is_low_rank_across(seen, numeric, claimed):
        text = f"{text} of {name} too, where every place has outputs of its own"
    else:
        return None
    return Diagnosis(cause=WRONG_AXIS, explanation=text, share=1.0)


def _matched_by_both(seen: BlockEntries) -> tuple[_Matched | None, _Matched | None]:
    """Return the dimensions matched by the numeric entries and by the claimed ones."""
    return _matched(seen.block, seen.nonzero), _matched(seen.block, seen.claimed != 0)


def _contradicted(evidence: Evidence, matched: _Matched, entries: Tensor) -> set[int]:
    """Return the dimensions of the input that are `matched`, and not equal in all of these other entries (m, n)."""
    outputs, inputs = _indices(evidence, entries)
    return {dim for dim, out_dim in matched.items() if not torch.equal(inputs[dim], outputs[out_dim])}


def _indices(evidence: Evidence, entries: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the indices in the output, and in the input, of the entries in a mask (m, n)."""
    rows, columns = entries.nonzero(as_tuple=True)
    places = ((rows, evidence.of.shape), (columns, evidence.wrt.shape))
    outputs, inputs = (torch.unravel_index(flat, shape) if shape else () for flat, shape in places)
    return outputs, inputs


def _matched(evidence: Evidence, entries: Tensor) -> _Matched | None:
    """Return the dimensions matched by the entries (m, n) bool; None if they do not describe where the entries are."""
    count = int(entries.sum())
    if not count:
        return None
    of, wrt = evidence.of.shape, evidence.wrt.shape
    outputs, inputs = _indices(evidence, entries)
    matched: _Matched = {}
    capacity = int(entries.any(1).sum()) * int(entries.any(0).sum())
    for in_dim, in_size in enumerate(wrt):
        for out_dim, out_size in enumerate(of):
            if in_size != out_size or in_size ** min(count, _MAX_COUNTED) < _MIN_ODDS or out_dim in matched.values():
                continue
            if torch.equal(inputs[in_dim], outputs[out_dim]):
                matched[in_dim] = out_dim
                capacity //= in_size
                break
    return matched if count >= _FILLED * capacity else None


def _is_low_rank_across(seen: BlockEntries, numeric: _Matched, claimed: _Matched) -> bool:
    """True if the claimed entries between independent elements have low rank, and the error is of rank above one.

    The entries examined are those of outputs with index 0 along all dimensions matched in `numeric`, by inputs with
    index 0 along the dimensions that `claimed` matches too, and another index along one that it does not.
    """
    rows, columns = (torch.ones_like(line, dtype=torch.bool) for line in (seen.claimed[:, 0], seen.claimed[0]))
    elsewhere = torch.zeros_like(columns)
    for in_dim, out_dim in numeric.items():
        rows &= index_along(seen.block.of.shape, out_dim, rows.device) == 0
        at_zero = index_along(seen.block.wrt.shape, in_dim, rows.device) == 0
        if in_dim in claimed:
            columns &= at_zero
        else:
            elsewhere |= ~at_zero
    across = seen.claimed[rows][:, columns & elsewhere]
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    rank = _rank(across)
    low_rank = 0 < rank < min(across.shape) and rank * _LINES_PER_SUM <= max(across.shape)
    return low_rank and _rank(error) > 1  # an error of rank one is a missing term


def _rank(matrix: Tensor) -> int:
    """Return the numerical rank of the leading MAX_DENSE rows and columns."""
    return rank_of(torch.linalg.svdvals(matrix[:MAX_DENSE, :MAX_DENSE]))
