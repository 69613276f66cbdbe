"""Missing summand: the error is constant over the wrong entries, or a multiple of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries, explained
from gradverify.diagnosis.block.relation import multiple_in_words
from gradverify.diagnosis.block.structure import is_elementwise, on_diagonal
from gradverify.diagnosis.block.tensors_along_axis import AxisTensor, tensors_along
from gradverify.diagnosis.causes.missing_factor import MISSING_FACTOR
from gradverify.diagnosis.causes.missing_term import MISSING_TERM
from gradverify.diagnosis.naming.constants import known_constant, number_text
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import differ_text
from gradverify.evidence import Diagnosis

_SAME = 1e-5  # relative spread of errors that count as equal
_MIN_ENTRIES = 4  # entries, or distinct values, that have to agree
_VARIATION = 0.01  # relative variation of a tensor along a line that rules out a constant
_EXACT = 1e-12  # relative: a product with one factor, up to float64 rounding
_TINY = torch.finfo(torch.float64).tiny


def missing_summand(seen: BlockEntries) -> Diagnosis | None:
    """Detect an error of c in all wrong entries, or of c·t in every entry, with one number c and a tensor t."""
    for pattern, name in _summands(seen):
        error = (seen.claimed - seen.numeric)[seen.wrong]
        expected = pattern[seen.wrong]
        if len(expected) < _MIN_ENTRIES or not bool((expected != 0).all()):
            continue
        if not _varies(seen.claimed[seen.wrong] / seen.numeric[seen.wrong]):
            continue  # a constant factor explains the error as well
        factor = float((error / expected).median())
        slack = _SAME * error.abs() + torch.minimum(seen.slack[seen.wrong], 1e-3 * error.abs())
        if factor == 0 or bool(((error - factor * expected).abs() > slack).any()):
            continue
        count = differ_text(len(expected), int((~seen.zero | seen.wrong).sum()), "entries")
        summand = f"{'+' if factor > 0 else '-'} {_written(abs(factor), name)}"
        text = f"{count}; analytic = numeric {summand}: a summand is missing or too many"
        found = explained(seen, seen.numeric + factor * pattern, MISSING_TERM, text)
        if found is not None:
            return found
    return None


def missing_multiple_per_line(seen: BlockEntries) -> Diagnosis | None:
    """Detect an error of k or k·t in every wrong entry, with one number k per row, or per column, and a tensor t."""
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    count = differ_text(int(seen.wrong.sum()), int((~seen.zero | seen.wrong).sum()), "entries")
    for axis, line in ((Axis.INPUT, "output"), (Axis.OUTPUT, "input")):
        for tensor in (_unnamed_ones(seen, axis), *tensors_along(seen.block, axis)):
            predicted_error = _line_multiples(seen, error, tensor)
            if predicted_error is not None:
                times = f" × {tensor.name}{tensor.where}" if tensor.name else ""
                kind = f"goes with {tensor.name}" if tensor.name else f"is one number in all wrong entries of an {line}"
                text = f"{count}; analytic = numeric + k{times}, with a number k of each {line}'s own"
                text = f"{text}: a term that {kind} is missing or too many"
                return explained(seen, seen.numeric + predicted_error, MISSING_TERM, text)
    return None


def _unnamed_ones(seen: BlockEntries, axis: Axis) -> AxisTensor:
    """Return a tensor of ones along an axis, with an empty name."""
    values = torch.ones(seen.numeric.shape[axis.value], dtype=seen.numeric.dtype, device=seen.numeric.device)
    return AxisTensor(name="", where="", axis=axis, values=values)


def claims_equal_tensor(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian whose nonzero entries are the values of one tensor, or their negatives."""
    nonzero = seen.claimed != 0
    claimed = seen.claimed[nonzero]
    for axis in Axis:
        for tensor in tensors_along(seen.block, axis):
            expected = tensor.broadcast.expand_as(seen.claimed)
            if bool((seen.wrong & ~nonzero & (expected != 0)).any()):
                continue  # the claim is zero although the tensor is not
            sign = next((sign for sign in (1.0, -1.0) if _match(claimed, sign * expected[nonzero])), None)
            if sign is not None:
                text = f"analytic = {'-' if sign == -1.0 else ''}{tensor.name}{tensor.where} and nothing else"
                text = f"{text}: a factor or a term is missing beside it, or another tensor belongs in its place"
                return explained(seen, torch.where(nonzero, sign * expected, 0.0), MISSING_FACTOR, text)
    return None


def claims_equal_cotangent(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian with one value in all nonzero entries, and no zero among the wrong entries."""
    nonzero = seen.claimed != 0
    if (
        bool((seen.wrong & ~nonzero).any())
        or int(seen.wrong.sum()) < _MIN_ENTRIES
        or _have_equal_magnitude(seen.numeric[seen.wrong])
    ):
        return None
    claimed = seen.claimed[nonzero]
    factor = float(claimed[0])
    if bool(((claimed - factor).abs() > _EXACT * abs(factor)).any()):
        return None
    text = f"analytic = {multiple_in_words(factor, 'cotangent')} and nothing else"
    text = f"{text}: a factor or a term of the derivative is missing beside it"
    return explained(seen, torch.where(nonzero, factor, 0.0), MISSING_FACTOR, text)


def _have_equal_magnitude(entries: Tensor) -> bool:
    size = entries.abs()
    return bool(size.max() - size.min() <= _VARIATION * size.max())


def _match(claimed: Tensor, expected: Tensor) -> bool:
    near = (claimed - expected).abs() <= _EXACT * expected.abs()
    return bool(near.all()) and int(torch.unique(expected).numel()) >= _MIN_ENTRIES


def _line_multiples(seen: BlockEntries, error: Tensor, tensor: AxisTensor) -> Tensor | None:
    """Return the error (m, n) fitted by one multiple of a tensor per row or column; None if the fit is not exact.

    A line needs at least _MIN_ENTRIES wrong entries, and a named tensor has to vary over them; otherwise one multiple
    fits by chance. Return None too if the numeric entries fit as well, because then any factor per line would.
    """
    line_axis = 1 - tensor.axis.value  # this axis enumerates the lines; sums run over the other
    expected = tensor.broadcast.expand_as(error).masked_fill(~seen.wrong, 0.0)
    wrong_lines = seen.wrong.any(1 - line_axis)
    smallest, largest = (
        expected.abs().masked_fill(~seen.wrong, math.inf).amin(1 - line_axis),
        expected.abs().amax(1 - line_axis),
    )
    enough = seen.wrong.sum(1 - line_axis) >= _MIN_ENTRIES
    varies = largest > (1 + _VARIATION) * smallest if tensor.name else enough
    if int(wrong_lines.sum()) < 2 or not bool((enough & varies & (smallest > 0))[wrong_lines].all()):
        return None
    fitted_error, fitted_numeric = (_fitted(entries, expected, 1 - line_axis) for entries in (error, seen.numeric))
    slack = _SAME * error.abs() + torch.minimum(seen.slack, 1e-3 * error.abs())
    if bool(((seen.numeric - fitted_numeric).abs() <= slack)[seen.wrong].all()):
        return None
    return fitted_error if bool(((error - fitted_error).abs() <= slack)[seen.wrong].all()) else None


def _fitted(entries: Tensor, expected: Tensor, dim: int) -> Tensor:
    """Return the least-squares fit of the entries by one multiple of `expected` per line along `dim`; (m, n)."""
    return (
        (entries * expected).sum(dim, keepdim=True)
        / expected.square().sum(dim, keepdim=True).clamp(min=_TINY)
        * expected
    )


def _summands(seen: BlockEntries) -> Iterator[tuple[Tensor, str]]:
    """Yield patterns (m, n) of which the error may be a multiple, each with the name of its tensor."""
    yield seen.wrong.to(seen.numeric.dtype), ""
    if total(seen.block.of.shape) == 1 or is_elementwise(seen):
        for tensor in tensors_along(seen.block, Axis.INPUT):
            if int(torch.unique(tensor.values).numel()) >= _MIN_ENTRIES:
                yield on_diagonal(seen.block, tensor.values), tensor.name


def _varies(ratio: Tensor) -> bool:
    return bool(((ratio - ratio[0]).abs() > 1e-3 * ratio[0].abs()).any()) or not bool(torch.isfinite(ratio).any())


def _written(factor: float, name: str) -> str:
    known = known_constant(factor, _SAME, ())
    text = known.text if known is not None else number_text(factor)
    if name and math.isclose(factor, 1.0, rel_tol=_SAME):
        return name
    return f"{text} × {name}" if name else text
