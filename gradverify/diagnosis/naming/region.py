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
from gradverify.diagnosis.naming.variables import Axis, Variable, VariableKind, block_along, scalars, variables
from gradverify.diagnosis.naming.wording import differ_text, element_name, listed
from gradverify.evidence import WrongBlock

_SIDES = 2  # of one threshold
_SEVERAL = 2  # coordinates needed on both sides of a threshold that is not anchored: an extreme value is no evidence
_DIGITS = 6  # significant digits of a threshold, at least
_DEPTH = 17  # significant digits of the larger end of a gap, at most: enough for any float64
_FEW = 3  # coordinates that are listed, at most
_CREDIBLE = 0.1  # chance of a coincidence above which a region is not reported
_SURE = 5e-3  # chance below which a region needs no test

# From new values of the variables, by name, to two masks (k,): inside the region, and certain to be inside or outside.
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
        noun = "elements" if self.axis is Axis.INPUT else "outputs"
        return differ_text(int(self.wrong.sum()), len(self.wrong), noun)

    def chance(self, families: int) -> float:
        """Return the chance that as many random relevant coordinates would be one of `families` given sets."""
        return chance(families, int(self.relevant.sum()), int(self.wrong.sum()))


def regions(group: AxisMasks, found: Sequence[Variable]) -> Iterator[Region]:
    """Yield the regions of `found` variables that separate the wrong from the other relevant coordinates.

    The simplest come first.
    """
    known, wrong, right = scalars(group.evidence), group.wrong, group.relevant & ~group.wrong
    if not bool(wrong.any()) or not bool(right.any()):
        return
    own, distances, others = (
        [(tried, variable) for tried, variable in enumerate(found, start=1) if variable.kind is kind]
        for kind in VariableKind
    )
    for _, variable in (*own, *distances):
        yield from _level(variable, wrong, right)
        yield from _one_sided(variable, known, wrong, right)
    for tried, variable in (*own, *distances):
        yield from _two_sided(variable, known, wrong, right, tried**2)
    for _, variable in others:
        yield from _level(variable, wrong, right)
    for tried, variable in others:
        yield from _one_sided(variable, known, wrong, right, tried)


def chance(families: int, total: int, chosen: int) -> float:
    """Return families / binomial(total, chosen), at most 1.

    This is the probability that a random choice of `chosen` coordinates equals one of `families` given sets.
    """
    log_choices = math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
    return min(1.0, families * math.exp(-log_choices))


def _one_sided(
    variable: Variable, known: Sequence[float], wrong: Tensor, right: Tensor, tried: int = 1
) -> Iterator[Region]:
    """Yield "x < 0" or "x > 1"; `tried` is the number of variables that could have given the region."""
    bad, good = variable.values[wrong], variable.values[right]
    families = 1 if variable.kind is VariableKind.DISTANCE else tried * _SIDES
    likely = chance(families, len(bad) + len(good), len(bad))
    for sign, gap in (
        ("<", Gap(inner=float(bad.max()), outer=float(good.min()))),
        (">", Gap(inner=float(bad.min()), outer=float(good.max()))),
    ):
        if gap.inner < gap.outer if sign == "<" else gap.inner > gap.outer:
            found = threshold(gap, known)
            text = f"{variable.name} {sign} {threshold_text(found, gap)}"
            tells, anchored = _membership(variable.name, bad, good), found in (0.0, *known)
            coincidence = likely if anchored or min(len(bad), len(good)) >= _SEVERAL else 1.0
            yield Region(text=text, chance=coincidence, anchored=anchored, one_sided=True, membership=tells)


def _level(variable: Variable, wrong: Tensor, right: Tensor) -> Iterator[Region]:
    """Yield "x = 0" if all wrong coordinates, and no right ones, have one value."""
    bad, good = variable.values[wrong], variable.values[right]
    if len(bad) >= 2 and bool((bad == bad[0]).all()) and not bool((good == bad[0]).any()):
        likely = chance(1 + len(torch.unique(good)), len(bad) + len(good), len(bad))
        text = f"{variable.name} = {float(bad[0]) + 0.0:.6g}"  # no -0
        tells = _membership(variable.name, bad, good)
        yield Region(text=text, chance=likely, level=True, membership=tells)


def _two_sided(
    variable: Variable, known: Sequence[float], wrong: Tensor, right: Tensor, tried: int
) -> Iterator[Region]:
    """Yield "x < 0 or x > 1" and "0 < x < 1".

    For the chance: of n coordinates, n - 2 sets of a given size lie outside or between two thresholds. `tried` is a
    further factor, for the variables that could have given the region.
    """
    bad, good = variable.values[wrong], variable.values[right]
    name = variable.name
    for inner, outer, form in ((good, bad, "{0} < {1} or {0} > {2}"), (bad, good, "{1} < {0} < {2}")):
        below, above = outer[outer < inner.min()], outer[outer > inner.max()]
        if len(below) + len(above) < len(outer) or not len(below) or not len(above):
            continue
        low, high = (float(below.max()), float(inner.min())), (float(above.min()), float(inner.max()))
        if inner is bad:  # a gap starts at the wrong value, which the threshold must not equal
            low, high = low[::-1], high[::-1]
        gaps = [Gap(inner=inner_end, outer=outer_end) for inner_end, outer_end in (low, high)]
        lower, upper = (threshold(gap, known) for gap in gaps)
        text = form.format(name, threshold_text(lower, gaps[0]), threshold_text(upper, gaps[1]))
        if lower == upper:
            text = f"{name} ≠ {lower:.6g}"
        elif variable.kind is VariableKind.OWN and 0.0 not in (lower, upper):
            size = replace(variable, name=f"|{name}|", kind=VariableKind.DISTANCE, values=variable.values.abs())
            text = next((region.text for region in _one_sided(size, known, wrong, right)), text)
        likely = chance(tried * max(1, len(bad) + len(good) - 2), len(bad) + len(good), len(bad))
        tells = _membership(name, bad, good)
        anchored = lower < upper and {lower, upper} <= {0.0, *known}
        if not anchored and min(len(bad), len(good)) < _SEVERAL:
            likely = 1.0
        yield Region(text=text, chance=likely, anchored=anchored, membership=tells)


def _membership(name: str, bad: Tensor, good: Tensor) -> Membership:
    """Return the test of membership by new values of a variable, from its values at wrong and at right coordinates.

    A new value is inside if the next larger known value is one of a wrong coordinate. That is certain if the next
    smaller one agrees.
    """
    order = torch.cat([bad, good]).argsort()
    ordered, inside_here = torch.cat([bad, good])[order], (order < len(bad))

    def tells(others: Mapping[str, Tensor]) -> tuple[Tensor, Tensor] | None:
        values = others.get(name)
        if values is None:
            return None
        values = values.contiguous()
        after = torch.searchsorted(ordered, values).clamp(max=len(ordered) - 1)
        before = (torch.searchsorted(ordered, values, right=True) - 1).clamp(min=0)
        return inside_here[after], inside_here[after] == inside_here[before]

    return tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The interval between the wrong and the right value that are next to a threshold."""

    inner: float  # the wrong value, excluded
    outer: float  # the right value, included


def threshold_text(value: float, gap: Gap) -> str:
    """Return the text of a number in a gap, with enough digits to be in it, and at least six."""
    low, high = sorted((gap.inner, gap.outer))
    texts = (f"{value:.{digits}g}" for digits in range(_DIGITS, _DEPTH + 1))
    return next((text for text in texts if low <= float(text) <= high and float(text) != gap.inner), f"{value!r}")


def threshold(gap: Gap, known: Iterable[float]) -> float:
    """Return zero if the gap holds it, else one of the `known` numbers, else the simplest."""
    if gap.inner > gap.outer:
        return 0.0 - threshold(Gap(inner=-gap.inner, outer=-gap.outer), [-value for value in known])
    for value in (0.0, *known):
        if gap.inner < value <= gap.outer:
            return value
    return _simplest(gap.inner, gap.outer)


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


def accepted_region(regions: Iterable[Region], follows: Follows | None) -> Region | None:
    """Return the first region that passes the test `follows`, or else the best of those that are not ruled out.

    Two kinds of regions need no test: regions of positions, and a single region that is hardly a coincidence. A failed
    test rules a region out unless its chance is small. Of the remaining ones, the first with anchored thresholds is
    returned, or else the first; None if there is none.
    """
    candidates = list(regions)
    remaining: list[Region] = []
    for region in candidates:
        sure = region.membership is None or (region.chance <= _SURE and len(candidates) == 1)
        passes = True if sure else follows and follows(region)
        if passes:
            return region
        if passes is None or region.chance <= _SURE:
            remaining.append(region)
    return next((region for region in remaining if region.anchored), remaining[0] if remaining else None)


def region_text(group: AxisMasks) -> str:
    """Return the text of the region that contains the wrong but no other relevant coordinates, "" if there is none."""
    credible = (region for region in regions(group, group.variables) if region.anchored or region.chance <= _CREDIBLE)
    region = accepted_region(credible, group.region_test)
    return "" if region is None else region.text


def elements_text(group: AxisMasks) -> str:
    """Return the names of the wrong coordinates if there are at most three, or of the only right one, else ""."""
    places = group.wrong.nonzero().flatten().tolist()
    right = (group.relevant & ~group.wrong).nonzero().flatten().tolist()
    if len(places) > 1 and len(right) == 1:
        return f"all elements but {element_name(group.block, right[0])}"
    return listed([element_name(group.block, at) for at in places]) if 0 < len(places) <= _FEW and right else ""
