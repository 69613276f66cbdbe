"""The region that is named beside a cause which stands without it."""

from __future__ import annotations

from torch import Tensor

from gradverify.core.whole.evidence import Site
from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import Axis, scalars, variables

_LIMIT = 0.35  # chance above which a region is left unsaid


def described(evidence: Site, axis: Axis, wrong: Tensor, relevant: Tensor) -> str:
    """Return what tells the wrong coordinates from the other relevant ones, (k,) bool, "" where nothing does."""
    found = regions(variables(evidence, axis), scalars(evidence), wrong, relevant)
    return next((region.text for region in found if _telling(region)), "")


def _telling(region: Region) -> bool:
    return region.anchored or region.chance <= _LIMIT
