"""The region that is named beside a cause which stands without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from gradverify.core.whole.evidence import Site
from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import Axis, scalars, variables

_LIMIT = 0.35  # chance above which a region is left unsaid

Choose = Callable[[Iterable[Region]], Region | None]  # one of several regions


def _first(regions: Iterable[Region]) -> Region | None:
    return next(iter(regions), None)


def described(evidence: Site, axis: Axis, wrong: Tensor, relevant: Tensor, choose: Choose = _first) -> str:
    """Return what tells the wrong coordinates from the other relevant ones, (k,) bool, "" where nothing does."""
    region = choose(filter(_telling, regions(variables(evidence, axis), scalars(evidence), wrong, relevant)))
    return "" if region is None else region.text


def _telling(region: Region) -> bool:
    return region.anchored or region.chance <= _LIMIT
