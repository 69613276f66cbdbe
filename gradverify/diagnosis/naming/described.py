"""The region that is named beside a cause which stands without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from gradverify.core.whole.evidence import Site
from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import Axis, scalars, side, variables
from gradverify.diagnosis.naming.wording import listed, place

_FEW = 3  # coordinates that are listed
_LIMIT = 0.1  # chance above which a region is left unsaid

Choose = Callable[[Iterable[Region]], Region | None]  # one of several regions


def _first(regions: Iterable[Region]) -> Region | None:
    return next(iter(regions), None)


def described(evidence: Site, axis: Axis, wrong: Tensor, relevant: Tensor, choose: Choose = _first) -> str:
    """Return what tells the wrong coordinates from the other relevant ones, (k,) bool, "" where nothing does."""
    region = choose(filter(_telling, regions(variables(evidence, axis), scalars(evidence), wrong, relevant)))
    return "" if region is None else region.text


def elements(evidence: Site, axis: Axis, wrong: Tensor, relevant: Tensor) -> str:
    """Return the wrong coordinates, (k,) bool, where they are few, or the one that is right; "" elsewhere."""
    block, places = side(evidence, axis), wrong.nonzero().flatten().tolist()
    right = (relevant & ~wrong).nonzero().flatten().tolist()
    if len(places) > 1 and len(right) == 1:
        return f"all elements but {place(block, right[0])}"
    return listed([place(block, at) for at in places]) if 0 < len(places) <= _FEW and right else ""


def _telling(region: Region) -> bool:
    return region.anchored or region.chance <= _LIMIT
