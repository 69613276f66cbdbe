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
    site, value, known, share = compared.block, found.value, found.known, found.share
    if known is None or value < 0 or max(value, 1 / value) < _MIN_SUMMANDS or found.argument is not None:
        return None  # a constant factor that names the argument is more specific
    count = round(max(value, 1 / value))
    counts = _summands_of(compared) if isinstance(compared, BlockEntries) else _Summands()
    if known.text not in (str(count), f"1/{count}") or count not in _possible_summands(site, value, counts):
        return None
    if value < 1:
        text = f"analytic = numeric / {count}{everywhere(share)}: a mean over {count} instead of their sum"
    else:
        text = f"analytic = {count} × numeric{everywhere(share)}: a sum over {count} instead of their mean"
    return Diagnosis(cause=MEAN_FOR_SUM, explanation=text, share=share)


def constant_factor(compared: ComparedBlock) -> Diagnosis | None:
    """Detect one factor on every entry; with a single nonzero entry, only a known constant or an argument."""
    found, nonzero = common_factor(compared), compared.nonzero
    if found is None:
        return None
    if found.known is None and found.argument is None and nonzero is not None and int(nonzero.sum()) < 2:
        return None
    text = f"analytic = {_signed(found)} × numeric{everywhere(found.share)}{_interpretation(compared.block, found)}"
    return Diagnosis(cause=CONSTANT_FACTOR, explanation=text, share=found.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A factor common to all entries of a block."""

    value: float  # exact if it is a known constant
    known: Constant | None
    argument: ScalarPower | None  # argument or result of which it is a power
    share: float  # of the squared error that it explains


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summands:
    """Number of nonzero entries of each row and of each column; None if it is not the same in all, or unknown."""

    of_output: int | None = None
    of_gradient: int | None = None
    all_equal: bool = False  # all nonzero entries are equal, as in sums and means over windows


def common_factor(compared: ComparedBlock) -> Factor | None:
    """Return the factor common to all entries, None if there is none."""
    found = _factor_of(compared.block, compared.ratio())
    share = None if found is None else compared.agrees(Pattern(factor=found.value))
    return None if found is None or share is None else replace(found, share=share)


def _factor_of(site: WrongBlock, ratio: Ratio | None) -> Factor | None:
    """Return the factor of a ratio, replaced by a known constant nearby; None if the ratio is 0, 1 or not finite."""
    if ratio is None or not math.isfinite(ratio.value) or ratio.value in (0.0, 1.0):
        return None
    known = known_constant(ratio.value, ratio.accuracy, _sizes(site)) or short_number(ratio.value, ratio.accuracy)
    exact = ratio.value if known is None else math.copysign(known.value, ratio.value)
    return Factor(value=exact, known=known, argument=scalar_power(site, exact, ratio.accuracy), share=1.0)


def _possible_sums(many: tuple[int, ...], few: tuple[int, ...], number: int | None) -> set[int]:
    """Return the numbers of summands possible in a reduction from shape `many` to shape `few`.

    These are the products of any dimensions that `many` has and `few` lacks. If `few` has further dimensions of size
    above 1, only the measured `number` of summands is possible, and none if that is None.
    """
    dropped, gained = Counter(many) - Counter(few), Counter(few) - Counter(many)
    dimensions = list(dropped.elements())[:_MAX_DIMENSIONS]
    products = {math.prod(part) for count in range(1, len(dimensions) + 1) for part in combinations(dimensions, count)}
    return products & {number} if any(size > 1 for size in gained) else products


def _sizes(site: WrongBlock) -> set[int]:
    """Return the products of any dimensions of the output, or of the input."""
    shapes = (site.of.shape, site.wrt.shape)
    return {
        math.prod(part)
        for shape in shapes
        for count in range(1, len(shape) + 1)
        for part in combinations(shape[:_MAX_DIMENSIONS], count)
    }


def _possible_summands(site: WrongBlock, value: float, counts: _Summands) -> set[int]:
    """Return the possible numbers of summands: of an output, and of a gradient if the factor divides."""
    shape = site.of.shape
    possible = _possible_sums(site.wrt.shape, shape, counts.of_output)
    if counts.all_equal and counts.of_output is not None:
        possible |= {counts.of_output}
    for block in site.inputs:
        if block != site.wrt:
            possible |= _possible_sums(block.shape, shape, None)
    if value > 1:
        return possible
    if counts.of_output == 1 and counts.of_gradient is not None:
        possible = possible | {counts.of_gradient}  # outputs that are copies of one input
    return possible | _possible_sums(shape, site.wrt.shape, counts.of_gradient)


def _summands_of(seen: BlockEntries) -> _Summands:
    of_output, of_gradient = _common_count(seen.nonzero.sum(1)), _common_count(seen.nonzero.sum(0))
    are_equal = common_value(seen.numeric[seen.nonzero], _EQUAL) is not None
    return _Summands(of_output=of_output, of_gradient=of_gradient, all_equal=are_equal)


def _common_count(counts: Tensor) -> int | None:
    """Return the count common to all nonzero counts (k,); None if there is none."""
    occurring = counts[counts > 0]
    return int(occurring[0]) if len(occurring) and bool((occurring == occurring[0]).all()) else None


def _signed(found: Factor) -> str:
    if found.known is None:
        return number_text(found.value)
    return f"-{found.known.text}" if found.value < 0 else found.known.text


def _interpretation(site: WrongBlock, found: Factor) -> str:
    known, value, size_text = found.known, found.value, _size_text(site, found)
    if found.argument is not None:
        source, predicate = found.argument, "is missing" if abs(value) < 1 else "too many"
        if source.negative:
            return f", which is {source.power_text} ({source.name} is {number_text(source.value)})"
        size_note = f", as is {size_text}" if size_text and source.value >= _MIN_SUMMANDS else ""
        return (
            f": a factor of {source.missing_text} {predicate} ({source.name} is {number_text(source.value)}{size_note})"
        )
    if known is None or value < 0 or known.is_decimal:
        return ""
    text = (
        f": a factor of {known.reciprocal} is missing" if known.reciprocal else f": a factor of {known.text} too many"
    )
    return f"{text} ({size_text})" if size_text else text


def _size_text(site: WrongBlock, found: Factor) -> str:
    """Return "the size of a dimension of x" if the factor or its inverse is one, else ""."""
    known, value = found.known, found.value
    if known is None or value < 0:
        return ""
    count = round(max(value, 1 / value))
    is_size = count >= _MIN_SUMMANDS and str(count) in (known.text, known.reciprocal)
    names = [block.name for block in (site.wrt, site.of) if is_size and count in block.shape]
    return f"the size of a dimension of {names[0]}" if names else ""


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
