"""Regions of values that contain the wrong coordinates: one threshold, two thresholds, or a single value.

A threshold is the simplest number between two neighbouring values, or an argument of the function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.naming.variables import Axis, Variable, VariableKind, block_along, scalars, variables
from gradverify.diagnosis.naming.wording import NAMED, differ_text, element_name, listed
from gradverify.diagnosis.tuning import CREDIBLE
from gradverify.evidence import WrongBlock

_DIGITS = 6  # significant digits of a threshold, at least
_DEPTH = 17  # significant digits of the larger end of a gap, at most: enough for any float64
_SURE = 5e-3  # chance below which a region needs no test

# From new values of the variables, by name, to two masks (k,): inside the region, and certain to be inside or outside.
# None if the values of the region's variable are not among them.
Membership = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A condition that holds for the wrong coordinates and for no right one."""

    text: str  # x < 0 or x > 1.5
    chance: float  # probability that a random choice of as many coordinates could be described by such a region
    anchored: bool = False  # every threshold is zero or an argument of the function
    one_sided: bool = False  # there is a single threshold
    level: bool = False  # all wrong coordinates have the same value
    membership: Membership | None = None  # membership by values; None for a region of positions

    @property
    def coincidence(self) -> float:
        """The chance that the region is a coincidence; anchored thresholds count half."""
        return self.chance / 2 if self.anchored else self.chance


Follows = Callable[[Region], bool | None]  # whether a region moves with the values; None if that is not clear


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMasks:
    """Masks of the coordinates along one axis of a block."""

    evidence: WrongBlock
    axis: Axis
    wrong: Tensor  # (k,) bool: with a wrong entry
    relevant: Tensor  # (k,) bool: with a nonzero entry, measured well enough for an error to show
    region_test: Follows | None = None  # test of a region at the permuted input, if there is one

    @property
    def block(self) -> Block:
        """The output or input along the axis."""
        return block_along(self.evidence, self.axis)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The finite variables along the axis, the most natural first."""
        return variables(self.evidence, self.axis)

    @property
    def count(self) -> str:
        """The number of wrong coordinates in words: "3 of 5 elements differ"."""
        return differ_text(int(self.wrong.sum()), len(self.wrong), self.axis.noun)

    def chance(self, families: int) -> float:
        """Return the chance that as many random relevant coordinates would be one of `families` given sets."""
        return chance(families, int(self.relevant.sum()), int(self.wrong.sum()))

    def accepted(self, regions: Iterable[Region]) -> Region | None:
        """Return the first region that passes the test, or else the best of those that are not ruled out.

        Two kinds of regions need no test: regions of positions, and a single region that is hardly a coincidence. A
        failed test rules a region out unless its chance is small. Of the remaining ones, the first with anchored
        thresholds is returned, or else the first; None if there is none.
        """
        candidates = list(regions)
        remaining: list[Region] = []
        for region in candidates:
            sure = region.membership is None or (region.chance <= _SURE and len(candidates) == 1)
            passes = True if sure else self.region_test and self.region_test(region)
            if passes:
                return region
            if passes is None or region.chance <= _SURE:
                remaining.append(region)
        return next((region for region in remaining if region.anchored), remaining[0] if remaining else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """The values of a variable, divided into those at wrong and at right coordinates."""

    variable: Variable
    bad: Tensor  # (w,)
    good: Tensor  # (r,)
    known: tuple[float, ...]  # numbers that a threshold is likely to be
    tried: int  # number of variables that could have given a region

    def region(self, text: str, families: int, *, anchored: bool = False, one_sided: bool = False) -> Region:
        """Return a region that holds the bad values alone, one of `families` that might hold as many."""
        is_extreme = not anchored and min(len(self.bad), len(self.good)) < SEVERAL
        likely = 1.0 if is_extreme else chance(families, len(self.bad) + len(self.good), len(self.bad))
        return Region(text=text, chance=likely, anchored=anchored, one_sided=one_sided, membership=self.membership)

    def membership(self, others: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        """Return which new values of the variable are inside, and for which that is certain; see `Membership`.

        A new value is inside if the next larger known value is one of a wrong coordinate. That is certain if the next
        smaller one agrees.
        """
        values = others.get(self.variable.name)
        if values is None:
            return None
        both = torch.cat([self.bad, self.good])
        order = both.argsort()
        ordered, inside_here, values = both[order], order < len(self.bad), values.contiguous()
        after = torch.searchsorted(ordered, values).clamp(max=len(ordered) - 1)
        before = (torch.searchsorted(ordered, values, right=True) - 1).clamp(min=0)
        return inside_here[after], inside_here[after] == inside_here[before]


def regions(group: AxisMasks, found: Sequence[Variable]) -> Iterator[Region]:
    """Yield the regions of variables that separate the wrong from the other relevant coordinates, simplest first."""
    known, wrong, right = scalars(group.evidence), group.wrong, group.relevant & ~group.wrong
    if not bool(wrong.any()) or not bool(right.any()):
        return
    splits = [
        _Split(variable=each, bad=each.values[wrong], good=each.values[right], known=known, tried=tried)
        for tried, each in enumerate(found, start=1)
    ]
    natural = [split for split in splits if split.variable.kind is not VariableKind.OTHER]
    others = [split for split in splits if split.variable.kind is VariableKind.OTHER]
    for split in natural:
        yield from _level(split)
        yield from _one_sided(split)
    for split in natural:
        yield from _two_sided(split)
    for split in others:
        yield from _level(split)
    for split in others:
        yield from _one_sided(split)


def chance(families: int, total: int, chosen: int) -> float:
    """Return families / binomial(total, chosen), at most 1.

    This is the probability that a random choice of `chosen` coordinates equals one of `families` given sets.
    """
    log_choices = math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
    return min(1.0, families * math.exp(-log_choices))


def _one_sided(split: _Split) -> Iterator[Region]:
    """Yield "x < 0" or "x > 1"."""
    tried = split.tried if split.variable.kind is VariableKind.OTHER else 1
    families = 1 if split.variable.kind is VariableKind.DISTANCE else 2 * tried  # on either side
    for sign, bad, good in (("<", split.bad.max(), split.good.min()), (">", split.bad.min(), split.good.max())):
        if bad < good if sign == "<" else bad > good:
            found = threshold(float(bad), float(good), split.known)
            text = f"{split.variable.name} {sign} {threshold_text(found, float(bad), float(good))}"
            yield split.region(text, families, anchored=found in (0.0, *split.known), one_sided=True)


def _level(split: _Split) -> Iterator[Region]:
    """Yield "x = 0" if all wrong coordinates, and no right ones, have one value."""
    bad, good = split.bad, split.good
    if len(bad) >= 2 and bool((bad == bad[0]).all()) and not bool((good == bad[0]).any()):
        likely = chance(1 + len(torch.unique(good)), len(bad) + len(good), len(bad))
        text = f"{split.variable.name} = {float(bad[0]) + 0.0:.6g}"  # no -0
        yield Region(text=text, chance=likely, level=True, membership=split.membership)


def _two_sided(split: _Split) -> Iterator[Region]:
    """Yield "x < 0 or x > 1" and "0 < x < 1".

    For the chance: of n coordinates, n - 2 sets of a given size lie outside or between two thresholds. The square of
    the number of variables tried is a further factor.
    """
    bad, good, known, name = split.bad, split.good, split.known, split.variable.name
    for inner, outer, form in ((good, bad, "{0} < {1} or {0} > {2}"), (bad, good, "{1} < {0} < {2}")):
        below, above = outer[outer < inner.min()], outer[outer > inner.max()]
        if len(below) + len(above) < len(outer) or not len(below) or not len(above):
            continue
        gaps = [(float(below.max()), float(inner.min())), (float(above.min()), float(inner.max()))]
        if inner is bad:  # a gap starts at the wrong value, which the threshold must not equal
            gaps = [gap[::-1] for gap in gaps]
        lower, upper = (threshold(*gap, known) for gap in gaps)
        text = form.format(name, threshold_text(lower, *gaps[0]), threshold_text(upper, *gaps[1]))
        if lower == upper:
            text = f"{name} ≠ {lower:.6g}"
        elif split.variable.kind is VariableKind.OWN and 0.0 not in (lower, upper):
            size = replace(split.variable, name=f"|{name}|", kind=VariableKind.DISTANCE)
            of_size = _one_sided(replace(split, variable=size, bad=bad.abs(), good=good.abs()))
            text = next((region.text for region in of_size), text)
        families = split.tried**2 * max(1, len(bad) + len(good) - 2)
        yield split.region(text, families, anchored=lower < upper and {lower, upper} <= {0.0, *known})


def threshold_text(value: float, bad: float, good: float) -> str:
    """Return a threshold with at least six digits, enough to lie between a wrong value, excluded, and a right one."""
    low, high = sorted((bad, good))
    texts = (f"{value:.{digits}g}" for digits in range(_DIGITS, _DEPTH + 1))
    return next((text for text in texts if low <= float(text) <= high and float(text) != bad), f"{value!r}")


def threshold(bad: float, good: float, known: Iterable[float]) -> float:
    """Return a number between a wrong value, excluded, and a right one: zero, a `known` one, or else the simplest."""
    if bad > good:
        return 0.0 - threshold(-bad, -good, [-value for value in known])
    for value in (0.0, *known):
        if bad < value <= good:
            return value
    return _simplest(bad, good)


def _simplest(low: float, high: float) -> float:
    """Return the number with the fewest digits in (low, high]; if there are several, the one nearest to the middle."""
    middle = low / 2 + high / 2
    top = math.floor(math.log10(max(abs(low), abs(high)))) + 1
    for exponent in range(top, top - _DEPTH, -1):
        for digit in (10, 5):
            step = digit * 10.0 ** (exponent - 1)
            first, last = math.floor(low / step) + 1, math.floor(high / step)
            if first <= last:
                value = float(f"{min(max(round(middle / step), first), last) * step:.15g}")
                if low < value <= high:
                    return value
    return high


def region_text(group: AxisMasks) -> str:
    """Return the text of the region that contains the wrong but no other relevant coordinates, "" if there is none."""
    credible = (region for region in regions(group, group.variables) if region.anchored or region.chance <= CREDIBLE)
    region = group.accepted(credible)
    return "" if region is None else region.text


def elements_text(group: AxisMasks) -> str:
    """Return the names of the wrong coordinates if there are at most three, or of the only right one, else ""."""
    places = group.wrong.nonzero().flatten().tolist()
    right = (group.relevant & ~group.wrong).nonzero().flatten().tolist()
    if len(places) > 1 and len(right) == 1:
        return f"all elements but {element_name(group.block, right[0])}"
    return listed([element_name(group.block, at) for at in places]) if 0 < len(places) <= NAMED and right else ""
