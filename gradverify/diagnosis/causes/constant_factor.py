"""One factor: a sign, a number of summands, another number made of counts, or any constant; or one on some slices."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.entries import BlockEntries, Pattern, are_multiples
from gradverify.diagnosis.block.relation import confined_along_axis, factor_in_words
from gradverify.diagnosis.block.structure import Slices, all_slices, axes_of, is_every_nth, is_run
from gradverify.diagnosis.naming.constants import (
    Constant,
    ScalarPower,
    allowed_distance,
    common_value,
    known_constant,
    measured_text,
    number_text,
    scalar_power,
    short_number,
)
from gradverify.diagnosis.naming.region import AxisMasks, Region
from gradverify.diagnosis.naming.variables import DIMENSIONS, Axis, broadcast_along
from gradverify.diagnosis.naming.wording import diagnosed_everywhere, dimensions_text
from gradverify.diagnosis.projections.sums import ComparedBlock
from gradverify.diagnosis.tuning import CREDIBLE, EQUAL_ENTRIES, NO_ACCIDENT
from gradverify.evidence import Diagnosis, WrongBlock

SIGN_FLIP, MEAN_FOR_SUM, WRONG_COUNT, CONSTANT_FACTOR = "sign-flip", "mean-for-sum", "wrong-count", "constant-factor"
_MIN_COUNT = 3  # smallest count considered: a factor of 2 or 1/2 may as well be a forgotten constant
_LARGE_COUNT = 11  # from here on a number is a count even by itself; a smaller one may be a constant of the formula
_PLAIN_FACTORS = ("2", "1/2")  # factors that are reported as constant-factor, even if they are a quotient of counts
_SUMMED = {
    Axis.INPUT: "outputs that each entry of {wrt} goes into",
    Axis.OUTPUT: "entries of {wrt} that each output is made of",
}

# Factors made of one count: the text, the factor, and the smallest count; the roots occur in a standard deviation.
_FORMS: tuple[tuple[str, Callable[[int], float], int], ...] = (
    ("n/(n - 1)", lambda n: n / (n - 1), _MIN_COUNT),
    ("(n - 1)/n", lambda n: (n - 1) / n, _MIN_COUNT),
    ("√(n/(n - 1))", lambda n: math.sqrt(n / (n - 1)), _MIN_COUNT),
    ("√((n - 1)/n)", lambda n: math.sqrt((n - 1) / n), _MIN_COUNT),
    ("n", float, _LARGE_COUNT),
    ("1/n", lambda n: 1 / n, _LARGE_COUNT),
    ("(n - 1)", lambda n: n - 1.0, _LARGE_COUNT),
    ("1/(n - 1)", lambda n: 1 / (n - 1), _LARGE_COUNT),
)


def sign_flip(compared: ComparedBlock) -> Diagnosis | None:
    """Detect the opposite sign in every entry."""
    return diagnosed_everywhere(SIGN_FLIP, "analytic = -numeric", compared.agrees(Pattern(factor=-1.0)))


def common_factor(compared: ComparedBlock) -> Diagnosis | None:
    """Detect one factor on every entry: a number of summands, a number made of other counts, or any constant."""
    found = _factor(compared)
    if found is None:
        return None
    if found.argument is None:  # otherwise a constant factor that names the argument is more specific
        diagnosis = _mean_for_sum(compared, found) or _wrong_count(compared, found)
        if diagnosis is not None:
            return diagnosis
    return _constant_factor(compared, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Factor:
    """A factor common to all entries of a block."""

    value: float  # exact if it is a known constant
    accuracy: float  # relative
    known: Constant | None
    argument: ScalarPower | None  # power of an argument or a result that it is, up to the sign
    share: float  # of the squared error that it explains

    @property
    def text(self) -> str:
        """The factor as it is printed: 2, -1/3, 1.2345."""
        if self.known is None:
            return measured_text(self.value, self.accuracy)
        return f"-{self.known.text}" if self.value < 0 else self.known.text

    @property
    def count(self) -> int | None:
        """The whole number that the factor is, or that it is the reciprocal of; None if it is neither."""
        count = round(max(self.value, 1 / self.value)) if self.known is not None and self.value > 0 else 0
        return count if self.text in (str(count), f"1/{count}") else None


def _factor(compared: ComparedBlock) -> _Factor | None:
    """Return the factor common to all entries, as a known constant if one is near; None if there is none but 0 or 1."""
    ratio, block = compared.ratio(), compared.block
    if ratio is None or not math.isfinite(ratio.value) or ratio.value in (0.0, 1.0):
        return None
    sizes = _products(block.of.shape) | _products(block.wrt.shape)
    known = known_constant(ratio.value, ratio.accuracy, sizes) or short_number(ratio.value, ratio.accuracy)
    exact = ratio.value if known is None else math.copysign(known.value, ratio.value)
    share = compared.agrees(Pattern(factor=exact))
    if share is None:
        return None
    argument = scalar_power(block, exact, ratio.accuracy)
    return _Factor(value=exact, accuracy=ratio.accuracy, known=known, argument=argument, share=share)


def _mean_for_sum(compared: ComparedBlock, found: _Factor) -> Diagnosis | None:
    """Return the diagnosis if the factor, or its reciprocal, is the number of summands of an output or a gradient."""
    count, divides = found.count, found.value < 1
    if count is None or count < _MIN_COUNT or count not in _possible_summands(compared, divides=divides):
        return None
    pattern = f"numeric / {count}" if divides else f"{count} × numeric"
    meaning = f"a mean over {count} instead of their sum" if divides else f"a sum over {count} instead of their mean"
    return diagnosed_everywhere(MEAN_FOR_SUM, f"analytic = {pattern}", found.share, f": {meaning}")


def _wrong_count(compared: ComparedBlock, found: _Factor) -> Diagnosis | None:
    """Return the diagnosis if the factor is made of counts, such as n for n - 1, or all elements for the valid ones."""
    nonzero = compared.nonzero
    if found.value <= 0 or found.text in _PLAIN_FACTORS:
        return None
    live, least = None, _LARGE_COUNT  # inputs with a nonzero derivative, and the smallest count
    if nonzero is not None:
        live = int(nonzero.any(0).sum())
        least = _MIN_COUNT if bool((nonzero.sum(0) > 1).any()) or bool((nonzero.sum(1) > 1).any()) else _LARGE_COUNT
    words = {count: text for count, text in _counts(compared.block, live).items() if count >= least}
    for text, value, counts in _factors(tuple(words)):
        if abs(value - found.value) <= allowed_distance(found.value):
            definitions = (f"{name} = {count} = {words[count]}" for name, count in zip("nm", counts, strict=False))
            meaning = f", with {' and '.join(definitions)}: a count is wrong"
            return diagnosed_everywhere(WRONG_COUNT, f"analytic = {text} × numeric", found.share, meaning)
    return None


def _constant_factor(compared: ComparedBlock, found: _Factor) -> Diagnosis | None:
    """Return the diagnosis of any other factor; with a single nonzero entry, only of a known constant or argument."""
    nonzero = compared.nonzero
    if found.known is None and found.argument is None and nonzero is not None and int(nonzero.sum()) < 2:
        return None
    pattern, meaning = f"analytic = {found.text} × numeric", _interpretation(compared.block, found)
    return diagnosed_everywhere(CONSTANT_FACTOR, pattern, found.share, meaning)


def _interpretation(block: WrongBlock, found: _Factor) -> str:
    sized = next((tensor for tensor in (block.wrt, block.of) if found.count in tensor.shape), None)
    size = "" if sized is None or (found.count or 0) < _MIN_COUNT else f"the size of a dimension of {sized.name}"
    source, constant, note = found.argument, found.argument or found.known, size
    if source is not None:
        note = f"{source.name} is {number_text(source.scalar)}"
        if source.value * found.value < 0:
            return f", which is -{source.text} ({note})"
        note += f", as is {size}" if size and source.scalar >= _MIN_COUNT else ""
    if constant is None or constant.is_decimal or (source is None and found.value < 0):
        return ""
    text = f"{constant.reciprocal} is missing" if constant.reciprocal else f"{constant.text} too many"
    return f": a factor of {text}{f' ({note})' if note else ''}"


def _products(shape: tuple[int, ...]) -> set[int]:
    """Return the products of any dimensions of a shape."""
    sizes = shape[:DIMENSIONS]
    return {math.prod(part) for count in range(1, len(sizes) + 1) for part in combinations(sizes, count)}


def _possible_summands(compared: ComparedBlock, *, divides: bool) -> set[int]:
    """Return the possible numbers of summands of an output and, if the factor `divides`, of a gradient.

    These are the products of dimensions that a reduction drops, and the numbers of nonzero entries in rows or columns.
    """
    block, nonzero = compared.block, compared.nonzero
    of_output, of_gradient = (None, None) if nonzero is None else (_common_count(nonzero.sum(dim)) for dim in (1, 0))
    possible = _dropped(block.wrt.shape, block.of.shape, of_output)
    if of_output is not None and isinstance(compared, BlockEntries):  # equal entries: a sum or a mean over windows
        possible |= {of_output} if common_value(compared.numeric[nonzero], EQUAL_ENTRIES) is not None else set()
    for tensor in block.inputs:
        if tensor != block.wrt:
            possible |= _dropped(tensor.shape, block.of.shape, None)
    if divides:
        possible |= _dropped(block.of.shape, block.wrt.shape, of_gradient)
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
    common = common_value(counts[counts > 0], 0.0)
    return None if common is None else int(common)


def _factors(counts: tuple[int, ...]) -> Iterator[tuple[str, float, tuple[int, ...]]]:
    """Yield the factors made of one or two counts, simplest first."""
    for (text, function, least), count in product(_FORMS, counts):
        if count >= least:
            yield text, function(count), (count,)
    for one, other in permutations(counts, 2):
        if one % other and other % one:  # a quotient that is an integer is a count by itself
            yield "n/m", one / other, (one, other)


def _counts(block: WrongBlock, live: int | None) -> dict[int, str]:
    """Return every count, described by the first tensor in which it occurs."""
    found: dict[int, str] = {}
    for tensor in (block.wrt, block.of, *block.inputs, *block.outputs):
        sizes = tensor.shape[:DIMENSIONS]
        for size in dict.fromkeys(sizes):
            dimensions = dimensions_text(at for at, each in enumerate(sizes) if each == size)
            found.setdefault(size, f"size of {tensor.name}'s {dimensions}")
        found.setdefault(total(tensor.shape), f"number of {tensor.name}'s elements")
    for entry in block.backward.problem.bound:
        if isinstance(entry.value, Tensor) and _is_mask(entry.value):
            found.setdefault(int((entry.value != 0).sum()), f"number of {entry.name}'s elements that are not zero")
    if live is not None:
        found.setdefault(live, f"number of {block.wrt.name}'s elements with a derivative")
    return found


def _is_mask(tensor: Tensor) -> bool:
    return tensor.numel() > 0 and not tensor.is_complex() and bool(((tensor == 0) | (tensor == 1)).all())


def mean_for_sum_by_line(seen: BlockEntries) -> Diagnosis | None:
    """Detect entries divided or multiplied by the number of nonzero entries in their row or column."""
    for axis in Axis:
        counts = seen.nonzero.sum(axis.across)
        occurring = counts[counts > 0]
        if not _counts_differ(occurring):
            continue
        divisor = broadcast_along(axis, counts.clamp(min=1)).to(seen.numeric.dtype)
        counted = _SUMMED[axis].format(wrt=seen.block.wrt.name)
        for predicted, scale, words, meaning in (
            (seen.numeric / divisor, 1.0, "numeric / k", "a mean over them instead of their sum"),
            (seen.numeric * divisor, float(divisor.max()), "k × numeric", "a sum over them instead of their mean"),
        ):
            share = seen.explained_share(predicted, scale)
            if share is not None:
                meaning = f", where k is the number of {counted}: {meaning}"
                return diagnosed_everywhere(MEAN_FOR_SUM, f"analytic = {words}", share, meaning)
    return None


def _counts_differ(counts: Tensor) -> bool:
    """True if the counts (k,) vary enough that factors equal to them are no coincidence."""
    frequencies = Counter(counts.tolist())
    if sum(count > 1 for count in frequencies) >= SEVERAL:
        return True
    return len(frequencies) >= SEVERAL and min(frequencies.values()) >= SEVERAL


def factor_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect one factor on some slices that are consecutive, equally spaced, or at both ends of a dimension."""
    wrong = seen.wrong
    ratio = seen.ratio_in(wrong) if int(wrong.sum()) >= NO_ACCIDENT else None
    factor = 0.0 if ratio is None else factor_in_words(ratio)[0]
    if factor == 0.0 or not are_multiples(seen.claimed[wrong], seen.numeric[wrong], seen.slack[wrong], factor):
        return None
    cause = SIGN_FLIP if factor == -1.0 else CONSTANT_FACTOR
    for axis in axes_of(seen):
        inside = broadcast_along(axis, wrong.any(axis.across))
        predicted = torch.where(inside, factor * seen.numeric, seen.numeric)
        found = confined_along_axis(seen, axis, cause, _regular_slices)
        if found is not None and not seen.contradicts_right(predicted, abs(factor)):
            return found
    return None


def _regular_slices(group: AxisMasks) -> Iterator[Region]:
    """Yield descriptions of the wrong slices if they are regular, and hardly so by chance."""
    for slices in all_slices(group):
        for placements, text in _descriptions(slices):
            likely = group.chance(placements * len(group.block.shape))
            if likely <= CREDIBLE:
                yield Region(text=text, chance=likely)


def _descriptions(slices: Slices) -> Iterator[tuple[int, str]]:
    """Yield descriptions of the wrong slices, each with the number of placements that fit the same description."""
    wrong, size = sorted(slices.wrong), slices.size
    count, all_relevant = len(wrong), len(slices.relevant) == size  # slices of zeros could complete a pattern by chance
    if all_relevant and is_run(wrong):
        yield size - count + 1, slices.where
    right = [place for place in range(size) if place not in slices.wrong]
    if all_relevant and right[0] > 0 and right[-1] < size - 1 and is_run(right):
        yield count - 1, f"{slices.where}, at both ends"
    step = min((after - before for before, after in pairwise(wrong)), default=1)
    if count > 2 and step > 1 and is_every_nth(slices, step):
        yield size, f"{slices.where}, one of each {step}"
