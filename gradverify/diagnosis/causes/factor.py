"""One factor on every entry: a sign, a number of summands, or a constant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations

from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence, Site
from gradverify.diagnosis.block.seen import Ratio, Seen, contradicts, ratio_of, share_of
from gradverify.diagnosis.causes.counts import by_counts
from gradverify.diagnosis.naming.arguments import Argument, argument
from gradverify.diagnosis.naming.constants import Constant, as_written, number, recognise
from gradverify.diagnosis.naming.wording import everywhere

SIGN_FLIP, MEAN_FOR_SUM, CONSTANT_FACTOR = "sign-flip", "mean-for-sum", "constant-factor"
_SUMMANDS = 3  # with two, a mean for a sum cannot be told from a forgotten ½
_ALIKE = 1e-6  # relative: measured entries that are the same
_MOST = 2  # one entry in so many has to differ
_DIMENSIONS = 6  # whose products are tried


def sign_flip(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry has the opposite sign."""
    del evidence
    share = _everywhere(seen, -1.0)
    return None if share is None else as_sign(share)


def mean_for_sum(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry is divided, or multiplied, by the number of summands that an output or a gradient has."""
    found = everywhere_factor(evidence, seen)
    if found is None:
        return by_counts(evidence, seen, MEAN_FOR_SUM)
    entries = ~seen.zero
    of_output, of_gradient = _number(entries.sum(1)), _number(entries.sum(0))
    return as_mean(evidence, found, Summands(of_output=of_output, of_gradient=of_gradient, alike=_are_alike(seen)))


def constant_factor(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Every entry is multiplied by one constant; a single entry tells so only if it is a known or a short one."""
    found = everywhere_factor(evidence, seen)
    if found is None:
        return None
    if found.known is None and found.argument is None and int((~seen.zero).sum()) < 2:
        return None
    return as_constant(evidence, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One number that every entry is multiplied by."""

    value: float  # exactly, where it is a known one
    known: Constant | None
    argument: Argument | None  # that it is a power of
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summands:
    """How many entries each output, and each gradient, is a sum over, None where that is not one number."""

    of_output: int | None
    of_gradient: int | None
    alike: bool = False  # all count as much, as those of sums and means over windows do


def as_sign(share: float) -> Diagnosis:
    """Return the diagnosis of a factor of -1."""
    return Diagnosis(cause=SIGN_FLIP, explanation=f"analytic = -numeric{everywhere(share)}", share=share)


def as_mean(site: Site, found: Factor, counts: Summands) -> Diagnosis | None:
    """Return the diagnosis of a factor that is a number of summands, None where it is none."""
    value, known, share = found.value, found.known, found.share
    if known is None or value < 0 or max(value, 1 / value) < _SUMMANDS or found.argument is not None:
        return None  # an argument that is as large says more of where the factor is from
    count = round(max(value, 1 / value))
    if known.text not in (str(count), f"1/{count}") or count not in _summands(site, value, counts):
        return None
    if value < 1:
        text = f"analytic = numeric / {count}{everywhere(share)}: a mean over {count} instead of their sum"
    else:
        text = f"analytic = {count} × numeric{everywhere(share)}: a sum over {count} instead of their mean"
    return Diagnosis(cause=MEAN_FOR_SUM, explanation=text, share=share)


def as_constant(site: Site, found: Factor) -> Diagnosis:
    """Return the diagnosis of any factor."""
    text = f"analytic = {_signed(found)} × numeric{everywhere(found.share)}{_reading(site, found)}"
    return Diagnosis(cause=CONSTANT_FACTOR, explanation=text, share=found.share)


def everywhere_factor(evidence: Evidence, seen: Seen) -> Factor | None:
    """Return the one factor on every entry, None where there is none."""
    if _MOST * int(seen.wrong.sum()) < int((~seen.zero).sum()):
        return None  # a factor so close to one that most entries agree is no statement about them
    found = factor_of(evidence, ratio_of(seen, seen.wrong))
    share = None if found is None else _everywhere(seen, found.value)
    return None if found is None or share is None else replace(found, share=share)


def factor_of(site: Site, ratio: Ratio | None) -> Factor | None:
    """Return the factor that a ratio amounts to, exactly where it is a known one; None where it is none."""
    if ratio is None or not math.isfinite(ratio.value) or ratio.value in (0.0, 1.0):
        return None
    known = recognise(ratio.value, ratio.accuracy, _sizes(site)) or as_written(ratio.value, ratio.accuracy)
    exact = ratio.value if known is None else math.copysign(known.value, ratio.value)
    return Factor(value=exact, known=known, argument=argument(site, exact, ratio.accuracy), share=1.0)


def summed(many: tuple[int, ...], few: tuple[int, ...], number: int | None) -> set[int]:
    """Return the sizes of what may be summed over on the way from one shape to the other.

    Where the latter is the former without some dimensions, those are summed over, and any of them may have been meant.
    Else it is told by the `number` of entries that each sum is known to have, None where it is not known.
    """
    left, gained = Counter(many) - Counter(few), Counter(few) - Counter(many)
    dimensions = list(left.elements())[:_DIMENSIONS]
    products = {math.prod(part) for count in range(1, len(dimensions) + 1) for part in combinations(dimensions, count)}
    return products & {number} if any(size > 1 for size in gained) else products


def _everywhere(seen: Seen, factor: float) -> float | None:
    """Return the share of the error that a factor explains, None where that is not enough or an entry goes without."""
    predicted = factor * seen.numeric
    share = share_of(seen, predicted, abs(factor))
    return None if share is None or contradicts(seen, predicted, abs(factor)) else share


def _sizes(site: Site) -> set[int]:
    """Return the sizes of both tensors' dimensions and the products of several of one tensor's."""
    shapes = (site.of.shape, site.wrt.shape)
    return {
        math.prod(part)
        for shape in shapes
        for count in range(1, len(shape) + 1)
        for part in combinations(shape[:_DIMENSIONS], count)
    }


def _summands(site: Site, value: float, counts: Summands) -> set[int]:
    """Return how many summands there may be: of an output over any input, and, to divide by, of a gradient."""
    shape = site.of.shape
    found = summed(site.wrt.shape, shape, counts.of_output)
    if counts.alike and counts.of_output is not None:
        found |= {counts.of_output}
    for block in site.inputs:
        if block != site.wrt:
            found |= summed(block.shape, shape, None)
    if value > 1:
        return found
    if counts.of_output == 1 and counts.of_gradient is not None:
        found = found | {counts.of_gradient}  # each input has outputs of its own: copies of it
    return found | summed(shape, site.wrt.shape, counts.of_gradient)


def _are_alike(seen: Seen) -> bool:
    entries = seen.numeric[~seen.zero]
    return bool(((entries - entries[0]).abs() <= _ALIKE * entries[0].abs()).all())


def _number(counts: Tensor) -> int | None:
    """Return the number of entries that all rows, or columns, have that have any."""
    live = counts[counts > 0]
    return int(live[0]) if len(live) and bool((live == live[0]).all()) else None


def _signed(found: Factor) -> str:
    if found.known is None:
        return number(found.value)
    return f"-{found.known.text}" if found.value < 0 else found.known.text


def _reading(site: Site, found: Factor) -> str:
    known, value, size = found.known, found.value, _size(site, found)
    if found.argument is not None:
        given, much = found.argument, "is missing" if abs(value) < 1 else "too many"
        if given.negative:
            return f", which is {given.itself} ({given.name} is {number(given.value)})"
        also = f", as is {size}" if size and given.value >= _SUMMANDS else ""
        return f": a factor of {given.text} {much} ({given.name} is {number(given.value)}{also})"
    if known is None or value < 0 or known.plain:
        return ""
    text = f": a factor of {known.inverse} is missing" if known.inverse else f": a factor of {known.text} too many"
    return f"{text} ({size})" if size else text


def _size(site: Site, found: Factor) -> str:
    """Return "the size of a dimension of x" where the factor, or its inverse, is one; "" elsewhere."""
    known, value = found.known, found.value
    if known is None or value < 0:
        return ""
    count = round(max(value, 1 / value))
    is_size = count >= _SUMMANDS and str(count) in (known.text, known.inverse)
    sized = [block.name for block in (site.wrt, site.of) if is_size and count in block.shape]
    return f"the size of a dimension of {sized[0]}" if sized else ""
