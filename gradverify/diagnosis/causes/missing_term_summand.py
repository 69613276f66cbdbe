"""Missing summand: the error is constant over the wrong entries, or a multiple of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries, explained
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.causes.missing_term import MISSING_TERM
from gradverify.diagnosis.naming.constants import known_constant, number_text
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import differ_text
from gradverify.evidence import Diagnosis

_SAME = 1e-5  # relative spread of errors that count as equal
_MIN_ENTRIES = 4  # entries, or distinct values, that have to agree
_VARIATION = 0.01  # relative variation of a tensor along a line that rules out a constant
_TINY = torch.finfo(torch.float64).tiny


def missing_summand(seen: BlockEntries) -> Diagnosis | None:
    """Detect an error of k or k·t in every wrong entry, with a tensor t and one number k, or one per row or column."""
    count = differ_text(int(seen.wrong.sum()), int((~seen.zero | seen.wrong).sum()), "entries")
    for pattern, name in _summands(seen):
        error = _multiple(seen, pattern, (0, 1))
        if error is not None:
            factor = float((error / pattern)[seen.wrong].median())
            summand = f"{'+' if factor > 0 else '-'} {_written(abs(factor), name)}"
            text = f"{count}; analytic = numeric {summand}: a summand is missing or too many"
            found = explained(seen, seen.numeric + factor * pattern, MISSING_TERM, text)
            if found is not None:
                return found
    for axis, line in ((Axis.INPUT, "output"), (Axis.OUTPUT, "input")):
        for pattern, name, where in _summands_by_line(seen, axis):
            error = _multiple(seen, pattern, (axis.value,))
            if error is not None:
                error_is = f"{name}{where} times a number" if name else "a number"
                kind = f"goes with {name}" if name else f"is one number in all wrong entries of an {line}"
                text = f"{count}; analytic - numeric is {error_is} of each {line}'s own"
                text = f"{text}: a term that {kind} is missing or too many"
                return explained(seen, seen.numeric + error, MISSING_TERM, text)
    return None


def _summands(seen: BlockEntries) -> Iterator[tuple[Tensor, str]]:
    """Yield patterns (m, n) of which the error may be a multiple, each with the name of its tensor."""
    if int(seen.wrong.sum()) < _MIN_ENTRIES:
        return
    yield torch.ones_like(seen.numeric) * seen.wrong, ""
    of_single_output = total(seen.block.of.shape) == 1
    if of_single_output or is_elementwise(seen):
        for tensor in seen.tensors_along(Axis.INPUT):
            if len(torch.unique(tensor.values)) >= _MIN_ENTRIES:
                yield tensor.values.unsqueeze(0) if of_single_output else torch.diag(tensor.values), tensor.name


def _summands_by_line(seen: BlockEntries, axis: Axis) -> Iterator[tuple[Tensor, str, str]]:
    """Yield patterns (m, n) that lines along an axis may be multiples of, each with its tensor's name and dimensions.

    A tensor has to vary over the wrong entries of each line, and these must not be few; otherwise one multiple fits by
    chance.
    """
    count = seen.wrong.sum(axis.value)
    wrong_lines = count > 0
    if int(wrong_lines.sum()) < 2 or bool((count < _MIN_ENTRIES)[wrong_lines].any()):
        return
    yield torch.ones_like(seen.numeric), "", ""
    for tensor in seen.tensors_along(axis):
        size = tensor.broadcast.abs().expand_as(seen.numeric)
        smallest = size.masked_fill(~seen.wrong, math.inf).amin(axis.value)
        largest = size.masked_fill(~seen.wrong, 0.0).amax(axis.value)
        if bool((largest > (1 + _VARIATION) * smallest)[wrong_lines].all()):
            yield tensor.broadcast.expand_as(seen.numeric), tensor.name, tensor.where


def _multiple(seen: BlockEntries, pattern: Tensor, across: tuple[int, ...]) -> Tensor | None:
    """Return the error (m, n) fitted by multiples of a pattern (m, n), one in each line across these dimensions.

    Returns None if the fit is not exact in all wrong entries, or if the pattern is zero in one. So too if the numeric
    entries are multiples as well, because then any factor in each line would fit.
    """
    error = (seen.claimed - seen.numeric).masked_fill(~seen.wrong, 0.0)
    expected = pattern.masked_fill(~seen.wrong, 0.0)
    if bool((expected == 0)[seen.wrong].any()):
        return None
    size = expected.square().sum(across, keepdim=True).clamp(min=_TINY)
    of_error, of_numeric = (
        (entries * expected).sum(across, keepdim=True) / size * expected for entries in (error, seen.numeric)
    )
    slack = _SAME * error.abs() + torch.minimum(seen.slack, 1e-3 * error.abs())
    if bool(((seen.numeric - of_numeric).abs() <= slack)[seen.wrong].all()):
        return None
    return of_error if bool(((error - of_error).abs() <= slack)[seen.wrong].all()) else None


def _written(factor: float, name: str) -> str:
    known = known_constant(factor, _SAME, ())
    text = known.text if known is not None else number_text(factor)
    if name and math.isclose(factor, 1.0, rel_tol=_SAME):
        return name
    return f"{text} × {name}" if name else text
