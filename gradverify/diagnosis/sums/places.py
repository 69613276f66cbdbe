"""Errors confined to some inputs or outputs: a region of values, an edge, or what forward masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.patterns import Column, Part, Row, agrees, columns, holds, of_inputs, of_outputs, rest, rows
from gradverify.core.whole.sums import Asked, scaled
from gradverify.diagnosis.block.located import likely
from gradverify.diagnosis.block.relation import named, times
from gradverify.diagnosis.block.structure import Group
from gradverify.diagnosis.causes.branch import LIMIT as BY_VALUE
from gradverify.diagnosis.causes.branch import WRONG_BRANCH, by_value
from gradverify.diagnosis.causes.mask import MISSING_MASK
from gradverify.diagnosis.causes.tile import BOUNDARY_TILE, edges
from gradverify.diagnosis.causes.tile import LIMIT as BY_PLACE
from gradverify.diagnosis.naming.described import described
from gradverify.diagnosis.naming.variables import Axis, side, variables
from gradverify.diagnosis.naming.wording import differ
from gradverify.diagnosis.sums.look import Look
from gradverify.diagnosis.sums.whole import ratio

_TILES = (4, 8, 16, 32, 64, 128, 256)  # sizes that are tried
_CHANGES = 2  # between right and wrong along an order: a region has one edge or two
_LOOKS = 4  # at coordinates of the same number, until one tells
_SEVERAL = 2  # wrong coordinates: one alone is no region
_SAME = 1e-6  # relative


def placed(look: Look) -> Diagnosis | None:
    """The wrong entries are those of some inputs, or of some outputs, and one relation holds there."""
    for axis in (Axis.INPUT, Axis.OUTPUT):
        for group in _groups(look, axis):
            found = _explained(look.asked, group)
            if found is not None:
                return found
    return None


def relation(asked: Asked, group: Group) -> str | None:
    """Return what is measured to hold in all entries of a group, if everything else is right: "2 × numeric"."""
    part = of_inputs(asked, group.wrong) if group.axis is Axis.INPUT else of_outputs(asked, group.wrong)
    if not agrees(asked, rest(asked, part)) or agrees(asked, part):
        return None
    return _holding(asked, group, part)


def _explained(asked: Asked, group: Group) -> Diagnosis | None:
    sums = asked.sums
    by_place = next((region for region in edges(sums, group) if likely(region) <= BY_PLACE), None)
    region = by_place or next((region for region in by_value(sums, group) if likely(region) <= BY_VALUE), None)
    alone = bool((group.wrong | ~_silent(asked, group.axis)).all())  # nothing else may be masked
    if region is None and not alone:
        return None
    holds_there = relation(asked, group)
    if holds_there is None:
        return None
    noun = "elements" if group.axis is Axis.INPUT else "outputs"
    count = differ(int(group.wrong.sum()), total(side(sums, group.axis).shape), noun)
    if holds_there.endswith(_MASKED):
        where = described(sums, group.axis, group.wrong, torch.ones_like(group.wrong))
        text = f"{count}; {holds_there}{f', at {where}' if where else ''}"
        return Diagnosis(cause=MISSING_MASK, explanation=text, share=1.0) if where or alone else None
    if region is None:
        return None
    cause = WRONG_BRANCH if by_place is None else BOUNDARY_TILE
    return Diagnosis(cause=cause, explanation=f"{count}; {holds_there} where {region.text}", share=1.0)


_MASKED = "where numeric = 0"


def _holding(asked: Asked, group: Group, part: Part) -> str | None:
    multiple = _multiple(asked, group)
    if holds(asked, scaled(part.numeric, 0.0), part.claimed):
        return "analytic = 0" if not bool((part.claimed != 0).any()) else None
    if holds(asked, part.numeric, torch.zeros_like(part.claimed)):
        return f"analytic {f'= {multiple}' if multiple else '≠ 0'} {_MASKED}"
    found = ratio(part)
    if found is not None:
        factor, words = named(found)
        if holds(asked, scaled(part.numeric, factor), part.claimed):
            return f"analytic = {words}"
    return f"analytic = {multiple}" if multiple else None


def _multiple(asked: Asked, group: Group) -> str | None:
    """Return "cotangent", or "3 × cotangent", where that is what backward returns for these inputs."""
    of, wrt = asked.sums.of, asked.sums.wrt
    if group.axis is not Axis.INPUT or of.shape != wrt.shape:
        return None
    given = asked.cotangents[:, of.coordinates][:, group.wrong]
    values = (asked.answers[:, wrt.coordinates][:, group.wrong] / given)[given != 0]
    middle = float(values.median()) if len(values) else 0.0
    if middle == 0 or bool(((values - middle).abs() > _SAME * abs(middle)).any()):
        return None
    return times(middle, "cotangent")


def _silent(asked: Asked, axis: Axis) -> Tensor:
    """Tell which inputs get nothing from any cotangent, or which outputs move with no input."""
    if axis is Axis.INPUT:
        return (asked.answers[:, asked.sums.wrt.coordinates] == 0).all(0)
    at = asked.sums.of.coordinates
    return torch.stack([found.value[at].abs() <= found.bar[at] for found in asked.slopes]).all(0)


def _groups(look: Look, axis: Axis) -> Iterator[Group]:
    """Yield what may be the wrong coordinates along an axis: exactly, or guessed by every order there is."""
    asked = look.asked
    sums, silent = asked.sums, _silent(asked, axis)
    if sums.all_places:
        known = sums.found.inputs if axis is Axis.INPUT else sums.found.outputs
        wrong = torch.zeros_like(silent).index_fill(0, known.to(sums.device), True)
        if int(wrong.sum()) >= _SEVERAL and bool((~wrong & ~silent).any()):
            yield Group(axis=axis, wrong=wrong, relevant=wrong | ~silent)
        return
    seen: Sequence[Column | Row] = look.columns if axis is Axis.INPUT else look.rows
    if not any(each.wrong for each in seen) or not any(each.right for each in seen):
        return
    for values in _orders(sums.of if axis is Axis.OUTPUT else sums.wrt, asked, axis):
        beyond = _beyond(_Order(values=values, silent=silent, asked=asked, axis=axis), seen)
        if beyond is not None and int(beyond.sum()) >= _SEVERAL and not bool(beyond.all()):
            yield Group(axis=axis, wrong=beyond, relevant=beyond | ~silent)


def _orders(block: Block, asked: Asked, axis: Axis) -> Iterator[Tensor]:
    """Yield a number for every coordinate along which wrong ones may lie together: values, indices, places in tiles."""
    for variable in variables(asked.sums, axis):
        yield variable.values
    places = torch.arange(total(block.shape), device=asked.sums.device)
    stride = 1
    for size in reversed(block.shape):
        index = places // stride % size
        if size > 1:
            yield index.double()
        for tile in _TILES:
            if 2 * tile <= size:
                yield (index % tile).double()
        stride *= size


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A number for every coordinate along an axis."""

    values: Tensor  # (k,)
    silent: Tensor  # (k,) bool: coordinates with nothing but zeros on one side
    asked: Asked
    axis: Axis


def _beyond(order: _Order, seen: Sequence[Column | Row]) -> Tensor | None:
    """Return the coordinates that are wrong if the wrong ones lie together, (k,) bool; None where they do not.

    The edges are found by halving between a right and a wrong coordinate, at one look each.
    """
    told = sorted((float(order.values[each.place]), each.wrong) for each in seen if each.wrong or each.right)
    if any(first[0] == second[0] and first[1] != second[1] for first, second in pairwise(told)):
        return None
    changes = [k for k in range(1, len(told)) if told[k - 1][1] != told[k][1]]
    if not 1 <= len(changes) <= _CHANGES:
        return None
    wrong = torch.full_like(order.silent, told[0][1])
    for k in changes:
        edge = _edge(order, told[k - 1], told[k])
        if edge is None:
            return None
        wrong = torch.where(order.values >= edge, told[k][1], wrong)
    return wrong


def _edge(order: _Order, below: tuple[float, bool], above: tuple[float, bool]) -> float | None:
    """Return the first value that is as the one above, None where a look does not tell."""
    between = order.values[(order.values > below[0]) & (order.values < above[0])]
    candidates: Tensor = torch.unique(between)
    low, high = 0, len(candidates)  # all before `low` are as below, all from `high` on as above
    while low < high:
        middle = (low + high) // 2
        wrong = _is_wrong(order, order.values == candidates[middle])
        if wrong is None:
            return None
        low, high = (low, middle) if wrong == above[1] else (middle + 1, high)
    return float(candidates[high]) if high < len(candidates) else above[0]


def _is_wrong(order: _Order, here: Tensor) -> bool | None:
    """Look at one of these coordinates, (k,) bool, or at another where that one does not tell."""
    look: Callable[[Asked, Sequence[int]], Sequence[Column | Row]] = columns if order.axis is Axis.INPUT else rows
    heard = here & ~order.silent  # what is silent may be wrong too, but tells less
    places = (heard if bool(heard.any()) else here).nonzero().flatten().tolist()
    for place in places[:: max(1, len(places) // _LOOKS)][:_LOOKS]:
        (found,) = look(order.asked, [place])
        if found.wrong != found.right:
            return found.wrong
    return None
