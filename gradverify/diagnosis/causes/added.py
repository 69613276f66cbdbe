"""A summand of the derivative is left out: the error is one number in all wrong entries, or a multiple of a tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.function.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.laid import laid
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.block.structure import is_elementwise, on_diagonal
from gradverify.diagnosis.causes.term import MISSING_TERM
from gradverify.diagnosis.naming.constants import number, recognise
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import differ, part

_SAME = 1e-5  # relative: errors that are one number
_SEVERAL = 4  # entries that agree


def missing_summand(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All wrong entries are off by one number, or every entry by one number times what a tensor holds there."""
    for pattern, words in _summands(evidence, seen):
        error = (seen.claimed - seen.numeric)[seen.wrong]
        held = pattern[seen.wrong]
        if len(held) < _SEVERAL or not bool((held != 0).all()):
            continue
        if not _varies(seen.claimed[seen.wrong] / seen.numeric[seen.wrong]):
            continue  # a factor says as much
        factor = float((error / held).median())
        slack = _SAME * error.abs() + torch.minimum(seen.slack[seen.wrong], 1e-3 * error.abs())
        if factor == 0 or bool(((error - factor * held).abs() > slack).any()):
            continue
        share = share_of(seen, seen.numeric + factor * pattern)
        if share is not None:
            count = differ(len(held), int((~seen.zero | seen.wrong).sum()), "entries")
            summand = f"{'+' if factor > 0 else '-'} {_times(abs(factor), words)}"
            text = f"{count}; analytic = numeric {summand}: a summand is missing or too many{part(share)}"
            return Diagnosis(cause=MISSING_TERM, explanation=text, share=share)
    return None


def _summands(evidence: Evidence, seen: Seen) -> Iterator[tuple[Tensor, str]]:
    """Yield what the error may be a multiple of, (m, n), and its name."""
    yield seen.wrong.to(seen.numeric.dtype), ""
    if total(evidence.of.shape) == 1 or is_elementwise(evidence, seen):
        for each in laid(evidence, Axis.INPUT):
            if int(torch.unique(each.values).numel()) >= _SEVERAL:
                yield on_diagonal(evidence, each.values), each.name


def _varies(ratio: Tensor) -> bool:
    return bool(((ratio - ratio[0]).abs() > 1e-3 * ratio[0].abs()).any()) or not bool(torch.isfinite(ratio).any())


def _times(factor: float, words: str) -> str:
    known = recognise(factor, _SAME, ())
    text = known.text if known is not None else number(factor)
    if words and math.isclose(factor, 1.0, rel_tol=_SAME):
        return words
    return f"{text} × {words}" if words else text
