"""Description of wrong coordinates, by a region or by their names, for causes that do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor

from gradverify.diagnosis.naming.region import Region, regions
from gradverify.diagnosis.naming.variables import Axis, block_along, scalars, variables
from gradverify.diagnosis.naming.wording import element_name, listed
from gradverify.evidence import WrongBlock

_FEW = 3  # coordinates that are listed, at most
_LIMIT = 0.1  # chance of a coincidence above which a region is not reported

ChooseRegion = Callable[[Iterable[Region]], Region | None]  # selects one of several regions


def _first(regions: Iterable[Region]) -> Region | None:
    return next(iter(regions), None)


def region_text(
    evidence: WrongBlock, axis: Axis, wrong: Tensor, relevant: Tensor, choose: ChooseRegion = _first
) -> str:
    """Return the text of the region that contains the wrong but no other relevant coordinates, "" if there is none.

    `wrong` and `relevant` are masks (k,) of the coordinates along the axis.
    """
    region = choose(filter(_is_credible, regions(variables(evidence, axis), scalars(evidence), wrong, relevant)))
    return "" if region is None else region.text


def elements_text(evidence: WrongBlock, axis: Axis, wrong: Tensor, relevant: Tensor) -> str:
    """Return the names of the wrong coordinates if there are at most three, or of the only right one, else "".

    `wrong` and `relevant` are masks (k,) of the coordinates along the axis.
    """
    block, places = block_along(evidence, axis), wrong.nonzero().flatten().tolist()
    right = (relevant & ~wrong).nonzero().flatten().tolist()
    if len(places) > 1 and len(right) == 1:
        return f"all elements but {element_name(block, right[0])}"
    return listed([element_name(block, at) for at in places]) if 0 < len(places) <= _FEW and right else ""


def _is_credible(region: Region) -> bool:
    return region.anchored or region.chance <= _LIMIT
