"""What holds inside a region of wrong entries: zero, a factor, a multiple of the cotangent, or nothing known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.block.seen import Ratio, Seen, ratio_of, share_of
from gradverify.diagnosis.block.structure import is_elementwise, on_diagonal
from gradverify.diagnosis.naming.constants import as_written, number, recognise

_SAME = 1e-6  # relative: values that are taken for one constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What was measured to hold inside a region."""

    text: str  # analytic = 2 × numeric
    share: float


def relation(evidence: Evidence, seen: Seen, inside: Tensor) -> Relation | None:
    """Return the first relation that explains the error; `inside` is bool and broadcasts to (m, n)."""
    region = inside.expand_as(seen.wrong)
    for predicted, scale, text in _candidates(evidence, seen, region):
        share = share_of(seen, predicted, scale)
        if share is not None:
            return Relation(text=text, share=share)
    return None


def confined(seen: Seen, inside: Tensor) -> float | None:
    """Return the share of the error inside the region whatever it is there, None where that is not enough."""
    return share_of(seen, torch.where(inside, seen.claimed, seen.numeric))


def multiple_of_cotangent(evidence: Evidence, seen: Seen, coordinates: Tensor) -> str | None:
    """Return "cotangent", or "3 × cotangent", where that is what backward returns for these inputs; (n,) bool."""
    if total(evidence.of.shape) > 1 and not is_elementwise(evidence, seen):
        return None
    own = seen.claimed[0] if total(evidence.of.shape) == 1 else seen.claimed.diagonal()
    values = own[coordinates]
    if not len(values):
        return None
    middle = float(values.median())
    if middle == 0 or bool(((values - middle).abs() > _SAME * abs(middle)).any()):
        return None
    return times(middle, "cotangent")


def times(factor: float, what: str) -> str:
    """Return "numeric", "-numeric" or "2 × numeric"."""
    signs = {1.0: "", -1.0: "-"}
    return f"{signs[factor]}{what}" if factor in signs else f"{number(factor)} × {what}"


def _candidates(evidence: Evidence, seen: Seen, inside: Tensor) -> Iterator[tuple[Tensor, float, str]]:
    """Yield what to expect of the whole block, by how much that enlarges numeric values, and how to say it."""
    if not bool(((seen.claimed != 0) & inside).any()):
        yield seen.numeric.masked_fill(inside, 0.0), 1.0, "analytic = 0"
    ratio = ratio_of(seen, inside)
    if ratio is not None and math.isfinite(ratio.value) and int((inside & ~seen.zero).sum()) >= 2:
        factor, words = named(ratio)
        yield torch.where(inside, factor * seen.numeric, seen.numeric), abs(factor), f"analytic = {words}"
    columns = inside.all(0)
    multiple = multiple_of_cotangent(evidence, seen, columns)
    if multiple is not None:
        own = seen.claimed[0] if total(evidence.of.shape) == 1 else seen.claimed.diagonal()
        predicted = seen.numeric.masked_fill(inside, 0.0) + on_diagonal(evidence, own * columns)
        yield predicted, 1.0, f"analytic = {multiple}"


def named(ratio: Ratio) -> tuple[float, str]:
    """Return the factor, exactly where it is a known one, and what it makes of "numeric"."""
    known = recognise(ratio.value, ratio.accuracy, ()) or as_written(ratio.value, ratio.accuracy)
    if known is not None:
        return math.copysign(known.value, ratio.value), f"{'-' if ratio.value < 0 else ''}{known.text} × numeric"
    factor = -1.0 if abs(ratio.value + 1.0) <= _SAME else ratio.value
    return factor, times(factor, "numeric")
