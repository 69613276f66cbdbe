"""Relations of claimed and numeric entries: their ratios, and what holds inside a region.

That is zero, a factor, or a multiple of the cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries, Ratio, explained_share, ratio_of
from gradverify.diagnosis.block.structure import is_elementwise
from gradverify.diagnosis.naming.constants import common_value, known_constant, number_text, short_number

_SAME = 1e-6  # relative tolerance for values of one constant
SAME_FACTOR = 1e-5  # relative tolerance of a factor, in addition to the error bars
_SHARP = 1e-2  # largest relative error bar of an entry; with a larger one it agrees with too many factors


def share_inside(entries: BlockEntries, inside: Tensor) -> float | None:
    """Return the share of the squared error that lies inside the region, None if below MIN_SHARE."""
    return explained_share(entries, torch.where(inside, entries.claimed, entries.numeric))


def multiple_of_cotangent(entries: BlockEntries, coordinates: Tensor) -> str | None:
    """Return "cotangent", or "3 × cotangent", if backward returns one multiple of it at `coordinates` (n,) bool.

    Returns None if not, or if the block is neither elementwise nor of a single output.
    """
    if total(entries.block.of.shape) > 1 and not is_elementwise(entries):
        return None
    multiples = entries.claimed[0] if total(entries.block.of.shape) == 1 else entries.claimed.diagonal()
    multiple = common_value(multiples[coordinates], _SAME)
    return multiple_in_words(multiple, "cotangent") if multiple else None


def multiple_in_words(factor: float, what: str) -> str:
    """Return the factor times `what` in words: "numeric", "-numeric" or "2 × numeric"."""
    signs = {1.0: "", -1.0: "-"}
    return f"{signs[factor]}{what}" if factor in signs else f"{number_text(factor)} × {what}"


def relations(entries: BlockEntries, inside: Tensor) -> Iterator[tuple[Tensor, float, str]]:
    """Yield relations that may hold in the entries of the mask `inside` (m, n), while all others are right.

    Each is the predicted block (m, n), the factor by which it scales numeric error bars, and a text: "analytic = 0".
    """
    if not bool(((entries.claimed != 0) & inside).any()):
        yield entries.numeric.masked_fill(inside, 0.0), 1.0, "analytic = 0"
    ratio = ratio_of(entries, inside)
    if ratio is not None and math.isfinite(ratio.value) and int((inside & ~entries.zero).sum()) >= 2:
        factor, words = factor_in_words(ratio)
        yield torch.where(inside, factor * entries.numeric, entries.numeric), abs(factor), f"analytic = {words}"
    multiple = multiple_of_cotangent(entries, inside.all(0))
    if multiple is not None:
        yield torch.where(inside, entries.claimed, entries.numeric), 1.0, f"analytic = {multiple}"


def factor_in_words(ratio: Ratio) -> tuple[float, str]:
    """Return the factor, rounded to a known constant if it is one, and the text of factor × numeric."""
    known = known_constant(ratio.value, ratio.accuracy, ()) or short_number(ratio.value, ratio.accuracy)
    if known is not None:
        return math.copysign(known.value, ratio.value), f"{'-' if ratio.value < 0 else ''}{known.text} × numeric"
    factor = -1.0 if abs(ratio.value + 1.0) <= _SAME else ratio.value
    return factor, multiple_in_words(factor, "numeric")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ratios at a sample of wrong and right entries that are measured well."""

    rows: Tensor  # (k,)
    columns: Tensor  # (k,)
    values: Tensor  # (k,) claimed / numeric
    tolerance: Tensor  # (k,) relative


def ratios(entries: BlockEntries) -> Ratios:
    """Return the ratios at the sampled entries that are neither zero nor badly measured.

    The tolerance at a right entry includes the tolerance of the check.
    """
    rows, columns = (
        torch.cat(places) for places in zip(entries.sampled_wrong.places, entries.sampled_right, strict=True)
    )
    accuracy = entries.slack[rows, columns] / entries.numeric[rows, columns].abs()
    chosen = ~entries.zero[rows, columns] & (accuracy <= _SHARP)
    rows, columns, accuracy = rows[chosen], columns[chosen], accuracy[chosen]
    values = entries.claimed[rows, columns] / entries.numeric[rows, columns]
    return Ratios(rows=rows, columns=columns, values=values, tolerance=SAME_FACTOR + accuracy)
