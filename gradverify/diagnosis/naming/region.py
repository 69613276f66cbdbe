"""Regions of values that contain the wrong coordinates: one threshold, two thresholds, or a single value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.diagnosis.naming.threshold import Gap, threshold, threshold_text
from gradverify.diagnosis.naming.variables import Variable, VariableKind

_SIDES = 2  # of one threshold
_SEVERAL = 2  # coordinates needed on both sides of a threshold that is not anchored: an extreme value is no evidence

# From new values of the variables, by name, to two masks (k,): inside the region, and certain to be inside or outside.
Membership = Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A condition that holds for the wrong coordinates and for no right one."""

    text: str  # x < 0 or x > 1.5
    chance: float  # probability that a random choice of as many coordinates could be described by such a region
    anchored: bool  # every threshold is zero or an argument of the function
    one_sided: bool  # there is a single threshold
    level: bool = False  # all wrong coordinates have the same value
    membership: Membership | None = None  # membership by values; None for a region of positions


def regions(found: Sequence[Variable], known: Sequence[float], wrong: Tensor, relevant: Tensor) -> Iterator[Region]:
    """Yield the regions that separate `wrong` from the other `relevant` coordinates, the simplest first.

    `found` are the variables along the axis, `known` the scalar arguments, `wrong` and `relevant` masks (k,).
    """
    right = relevant & ~wrong
    if not bool(wrong.any()) or not bool(right.any()):
        return
    for form in (VariableKind.OWN, VariableKind.DISTANCE):
        for variable in found:
            if variable.kind is form:
                yield from _level(variable, wrong, right)
                yield from _one_sided(variable, known, wrong, right)
    for form in (VariableKind.OWN, VariableKind.DISTANCE):
        for tried, variable in enumerate(found, start=1):
            if variable.kind is form:
                yield from _two_sided(variable, known, wrong, right, tried**2)
    others = [(tried, variable) for tried, variable in enumerate(found, start=1) if variable.kind is VariableKind.OTHER]
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
            text = f"{variable.name} {sign} {threshold_text(found.value, gap)}"
            tells = _membership(variable.name, bad, good)
            coincidence = likely if found.anchored or min(len(bad), len(good)) >= _SEVERAL else 1.0
            yield Region(text=text, chance=coincidence, anchored=found.anchored, one_sided=True, membership=tells)


def _level(variable: Variable, wrong: Tensor, right: Tensor) -> Iterator[Region]:
    """Yield "x = 0" if all wrong coordinates, and no right ones, have one value."""
    bad, good = variable.values[wrong], variable.values[right]
    if len(bad) >= 2 and bool((bad == bad[0]).all()) and not bool((good == bad[0]).any()):
        likely = chance(1 + len(torch.unique(good)), len(bad) + len(good), len(bad))
        text = f"{variable.name} = {float(bad[0]) + 0.0:.6g}"  # no -0
        tells = _membership(variable.name, bad, good)
        yield Region(text=text, chance=likely, anchored=False, one_sided=False, level=True, membership=tells)


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
        ends = [threshold(gap, known) for gap in gaps]
        lower, upper = (end.value for end in ends)
        text = form.format(name, *(threshold_text(end.value, gap) for end, gap in zip(ends, gaps, strict=True)))
        if lower == upper:
            text = f"{name} ≠ {lower:.6g}"
        elif variable.kind is VariableKind.OWN and 0.0 not in (lower, upper):
            size = Variable(name=f"|{name}|", kind=VariableKind.DISTANCE, values=variable.values.abs())
            text = next((region.text for region in _one_sided(size, known, wrong, right)), text)
        likely = chance(tried * max(1, len(bad) + len(good) - 2), len(bad) + len(good), len(bad))
        tells = _membership(name, bad, good)
        anchored = lower < upper and all(end.anchored for end in ends)
        if not anchored and min(len(bad), len(good)) < _SEVERAL:
            likely = 1.0
        yield Region(text=text, chance=likely, anchored=anchored, one_sided=False, membership=tells)


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
