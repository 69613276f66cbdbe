"""One factor on every entry: a sign, a number of summands or another constant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries, Pattern, Ratio, explained_share
from gradverify.diagnosis.naming.arguments import ScalarPower, scalar_power
from gradverify.diagnosis.naming.constants import Constant, common_value, known_constant, number_text, short_number
from gradverify.diagnosis.naming.variables import Axis, broadcast_along
from gradverify.diagnosis.naming.wording import everywhere
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.evidence import Diagnosis, WrongBlock

SIGN_FLIP, MEAN_FOR_SUM, CONSTANT_FACTOR = "sign-flip", "mean-for-sum", "constant-factor"
_MIN_SUMMANDS = 3  # least number of summands: a factor of 2 or 1/2 may as well be a forgotten constant
_EQUAL = 1e-6  # relative difference of numeric entries that count as equal
_MAX_DIMENSIONS = 6  # dimensions whose products are tried
_MIN_DISTINCT = 2  # distinct counts: with a single one, a constant factor explains the error as well
_MIN_FREQUENCY = 2  # lines per count, if the only two distinct counts are 1 and another
_SUMMED = {
    Axis.INPUT: "outputs that each entry of {wrt} goes into",
    Axis.OUTPUT: "entries of {wrt} that each output is made of",
}


def sign_flip(compared: ComparedBlock) -> Diagnosis | None:
    """Detect the opposite sign in every entry."""
    share = compared.agrees(Pattern(factor=-1.0))
    if share is None:
        return None
    return Diagnosis(cause=SIGN_FLIP, explanation=f"analytic = -numeric{everywhere(share)}", share=share)


def mean_for_sum(compared: ComparedBlock) -> Diagnosis | None:
    """Detect entries divided or multiplied by the number of summands of an output or of a gradient."""
    found = common_factor(compared)
    if found is None:
        return _mean_for_sum_by_line(compared) if isinstance(compared, BlockEntries) else None
    count = found.count
    if count is None or count < _MIN_SUMMANDS or found.argument is not None:
        return None  # a constant factor that names the argument is more specific
    if count not in _possible_summands(compared, divides=found.value < 1):
        return None
    if found.value < 1:
        text = f"numeric / {count}{everywhere(found.share)}: a mean over {count} instead of their sum"
    else:
        text = f"{count} × numeric{everywhere(found.share)}: a sum over {count} instead of their mean"
    return Diagnosis(cause=MEAN_FOR_SUM, explanation=f"analytic = {text}", share=found.share)


def constant_factor(compared: ComparedBlock) -> Diagnosis | None:
    """Detect one factor on every entry; with a single nonzero entry, only a known constant or an argument."""
    found, nonzero = common_factor(compared), compared.nonzero
    if found is None:
        return None
    if found.known is None and found.argument is None and nonzero is not None and int(nonzero.sum()) < 2:
        return None
    text = f"analytic = {found.text} × numeric{everywhere(found.share)}{_interpretation(compared.block, found)}"
    return Diagnosis(cause=CONSTANT_FACTOR, explanation=text, share=found.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A factor common to all entries of a block."""

    value: float  # exact if it is a known constant
    known: Constant | None
    argument: ScalarPower | None  # argument or result of which it is a power
    share: float  # of the squared error that it explains

    @property
    def text(self) -> str:
        """The factor as it is printed: 2, -1/3, 1.2345."""
        if self.known is None:
            return number_text(self.value)
        return f"-{self.known.text}" if self.value < 0 else self.known.text

    @property
    def count(self) -> int | None:
        """The whole number that the factor is, or that it is the reciprocal of; None if it is neither."""
        count = round(max(self.value, 1 / self.value)) if self.known is not None and self.value > 0 else 0
        return count if self.text in (str(count), f"1/{count}") else None


def common_factor(compared: ComparedBlock) -> Factor | None:
    """Return the factor common to all entries, None if there is none."""
    found = _factor_of(compared.block, compared.ratio())
    share = None if found is None else compared.agrees(Pattern(factor=found.value))
    return None if found is None or share is None else replace(found, share=share)


def _factor_of(site: WrongBlock, ratio: Ratio | None) -> Factor | None:
    """Return the factor of a ratio, replaced by a known constant nearby; None if the ratio is 0, 1 or not finite."""
    if ratio is None or not math.isfinite(ratio.value) or ratio.value in (0.0, 1.0):
        return None
    sizes = _products(site.of.shape) | _products(site.wrt.shape)
    known = known_constant(ratio.value, ratio.accuracy, sizes) or short_number(ratio.value, ratio.accuracy)
    exact = ratio.value if known is None else math.copysign(known.value, ratio.value)
    return Factor(value=exact, known=known, argument=scalar_power(site, exact, ratio.accuracy), share=1.0)


def _products(shape: tuple[int, ...]) -> set[int]:
    """Return the products of any dimensions of a shape."""
    sizes = shape[:_MAX_DIMENSIONS]
    return {math.prod(part) for count in range(1, len(sizes) + 1) for part in combinations(sizes, count)}


def _possible_summands(compared: ComparedBlock, *, divides: bool) -> set[int]:
    """Return the possible numbers of summands of an output and, if the factor `divides`, of a gradient.

    These are the products of dimensions that a reduction drops, and the numbers of nonzero entries in rows or columns.
    """
    site, nonzero = compared.block, compared.nonzero
    of_output, of_gradient = (None, None) if nonzero is None else (_common_count(nonzero.sum(dim)) for dim in (1, 0))
    possible = _dropped(site.wrt.shape, site.of.shape, of_output)
    if of_output is not None and isinstance(compared, BlockEntries):  # equal entries: a sum or a mean over windows
        possible |= {of_output} if common_value(compared.numeric[nonzero], _EQUAL) is not None else set()
    for block in site.inputs:
        if block != site.wrt:
            possible |= _dropped(block.shape, site.of.shape, None)
    if divides:
        possible |= _dropped(site.of.shape, site.wrt.shape, of_gradient)
        possible |= {of_gradient} if of_output == 1 and of_gradient is not None else set()  # copies of one input
    return possible


def _dropped(many: tuple[int, ...], few: tuple[int, ...], number: int | None) -> set[int]:
    """Return the products of any dimensions that the shape `many` has and `few` lacks.

    If `few` has further dimensions of size above 1, only the measured `number` of summands counts, if any.
    """
    dropped, gained = Counter(many) - Counter(few), Counter(few) - Counter(many)
    products = _products(tuple(dropped.elements()))
    return products & {number} if any(size > 1 for size in gained) else products


def _common_count(counts: Tensor) -> int | None:
    """Return the count common to all nonzero counts (k,); None if there is none."""
    occurring = counts[counts > 0]
    return int(occurring[0]) if len(occurring) and bool((occurring == occurring[0]).all()) else None


def _interpretation(site: WrongBlock, found: Factor) -> str:
    sized = next((block for block in (site.wrt, site.of) if found.count in block.shape), None)
    size = "" if sized is None or (found.count or 0) < _MIN_SUMMANDS else f"the size of a dimension of {sized.name}"
    source, known = found.argument, found.known
    if source is not None:
        given = f"{source.name} is {number_text(source.value)}"
        if source.negative:
            return f", which is {source.power_text} ({given})"
        as_size = f", as is {size}" if size and source.value >= _MIN_SUMMANDS else ""
        predicate = "is missing" if abs(found.value) < 1 else "too many"
        return f": a factor of {source.missing_text} {predicate} ({given}{as_size})"
    if known is None or found.value < 0 or known.is_decimal:
        return ""
    text = f"{known.reciprocal} is missing" if known.reciprocal else f"{known.text} too many"
    return f": a factor of {text}{f' ({size})' if size else ''}"


def _mean_for_sum_by_line(seen: BlockEntries) -> Diagnosis | None:
    """Detect entries divided or multiplied by the number of nonzero entries in their row or column."""
    nonzero = ~seen.zero
    for axis in Axis:
        counts = nonzero.sum(1 - axis.value)
        occurring = counts[counts > 0]
        if not _counts_differ(occurring):
            continue
        divisor = broadcast_along(axis, counts.clamp(min=1)).to(seen.numeric.dtype)
        counted = _SUMMED[axis].format(wrt=seen.block.wrt.name)
        for predicted, scale, words, interpretation in (
            (seen.numeric / divisor, 1.0, "numeric / k", "a mean over them instead of their sum"),
            (seen.numeric * divisor, float(divisor.max()), "k × numeric", "a sum over them instead of their mean"),
        ):
            share = explained_share(seen, predicted, scale)
            if share is not None:
                text = f"analytic = {words}{everywhere(share)}, where k is the number of {counted}: {interpretation}"
                return Diagnosis(cause=MEAN_FOR_SUM, explanation=text, share=share)
    return None


def _counts_differ(counts: Tensor) -> bool:
    """True if the counts (k,) vary enough that factors equal to them are no coincidence."""
    frequencies = Counter(counts.tolist())
    above_one = [count for count in frequencies if count > 1]
    return len(above_one) >= _MIN_DISTINCT or (
        len(frequencies) >= _MIN_DISTINCT and min(frequencies.values()) >= _MIN_FREQUENCY
    )
