"""Many points in one call as copies side by side, along the first dimension of whatever has the outputs' batch.

Functions of a batch allow it, hand-written ones included. Copies are believed only while they say bit for bit what each
point says alone, at points where they would show it if they heard each other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gradverify.core.forward.sampler import Mode, Sampler, single, units_apart
from gradverify.core.model.coordinates import coordinates_in, real_view
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.magnitudes import any_set, identical
from gradverify.core.model.problem import call
from gradverify.errors import EvaluationError

WORTH = 6  # fewer points are evaluated one by one
HELD = 2_000_000  # numbers in one call, at most
ROUGH = 8.0  # units of rounding by which a vector register and single entries may be apart
REFUSED = (RuntimeError, ValueError, TypeError, IndexError)  # by what inputs of another shape are
_BESIDE = "beside the point"
_FACTORS = (1.0, 2.0)  # of the points that are put to the test


class ElsewhereError(Exception):
    """These points are not for this way, others may be."""


def beside_the_point(sampled: Sampler, points: Tensor) -> Tensor | None:
    """Return the outputs at points (N, n), of which the last is the sampler's own, one behind the other in one call.

    For functions of which every output goes by the entries of its own number, of inputs of its shape. None where they
    cannot be asked so, or what they answer at the point is not what they say there alone, but for rounding; (N, m).
    """
    if sampled.mode is not Mode.WITHOUT_GRAPH or sampled.problem.seed is not None:
        return None
    copied = _matching(sampled)
    if not all(copied) or not _may_be_longer(sampled):
        return None
    try:
        with quietly():
            found = _side_by_side(sampled, stacked(sampled, points), copied)
    except REFUSED:
        return None
    if found is None or found.shape != (points.shape[0], sampled.value.numel()):
        return None
    apart = units_apart(sampled, found[-1], sampled.value)
    if apart > ROUGH:
        return None
    if apart > 0.0:
        sampled.together.apart[_BESIDE] = max(apart, sampled.together.apart.get(_BESIDE, 0.0))
    return found


def by_batch(sampled: Sampler, points: Tensor, most: float) -> Tensor | None:
    """Put the copies one after the other along the first dimension of whatever has the outputs' batch."""
    if len({shape[0] if shape else 0 for shape in sampled.shapes}) != 1 or not _may_be_longer(sampled):
        return None
    matching = _matching(sampled)
    if len(matching) > 1 and all(matching) and _is_left_to_vmap(sampled, most):
        raise ElsewhereError  # inputs of one length need not have a batch in common: those of a product have none
    tried = [matching]
    if not all(matching):
        moved = _moved(sampled, points)
        if any_set(moved[:, _others(matching)]):
            raise ElsewhereError
        tried.append(tuple(moved.any(dim=0).tolist()))
    apart = sampled.together.apart
    for copied in dict.fromkeys(tried):
        if apart.get(copied, 0.0) > most:
            continue
        if copied not in apart:
            units = _copies_apart(sampled, len(points), copied)
            apart[copied] = units if units <= ROUGH else math.inf
            sampled.together.calls += 2  # every row of two kinds has just been compared
        if apart[copied] <= most:
            return _side_by_side(sampled, stacked(sampled, points), copied)
    if any(apart[copied] < math.inf for copied in tried):
        raise ElsewhereError
    return None


def by_batch_in_part(sampled: Sampler, points: Tensor, most: float) -> Tensor | None:
    """Do so with the points that differ in nothing else, and evaluate the others one by one."""
    mine = ~_moved(sampled, points)[:, _others(_matching(sampled))].any(dim=1)
    if int(mine.sum()) < WORTH:
        raise ElsewhereError
    found = by_batch(sampled, points[mine], most)
    if found is None:
        return None
    whole = found.new_empty(len(points), found.shape[1])
    whole[mine] = found
    for place in (~mine).nonzero().squeeze(1).tolist():
        whole[place] = single(sampled, points[place].clone())
    return whole


def _may_be_longer(sampled: Sampler) -> bool:
    """Tell whether inputs of another length do no harm.

    Other tensors may hold lengths or offsets that a kernel trusts, and a kernel on a GPU that reads beyond its inputs
    may take everything down with it.
    """
    beside = any(isinstance(bound.value, Tensor) for bound in sampled.problem.bound)
    return not beside and all(primal.tensor.device.type == "cpu" for primal in sampled.problem.primals)


def _is_left_to_vmap(sampled: Sampler, most: float) -> bool:
    """Tell whether that is the better guess of the two."""
    state = sampled.together
    return "vmap" in state.ways and state.apart.get("vmap", 0.0) <= most


def _moved(sampled: Sampler, points: Tensor) -> Tensor:
    """Tell which inputs differ from those at the point, (N, primals) bool."""
    sizes = [coordinates_in(primal.tensor) for primal in sampled.problem.primals]
    return torch.stack([piece.any(dim=1) for piece in torch.split(points != sampled.point, sizes, dim=1)], dim=1)


def _matching(sampled: Sampler) -> tuple[bool, ...]:
    """Tell which inputs have as many entries along their first dimension as the outputs."""
    sizes = {shape[0] if shape else 0 for shape in sampled.shapes}
    shapes = (primal.tensor.shape for primal in sampled.problem.primals)
    return tuple(len(sizes) == 1 and len(shape) > 0 and shape[0] in sizes for shape in shapes)


def _others(matching: Sequence[bool]) -> list[int]:
    return [number for number, matches in enumerate(matching) if not matches]


def _copies_apart(sampled: Sampler, count: int, copied: Sequence[bool]) -> float:
    """Return by how many units of rounding several points side by side are apart from what each gives alone.

    Other points than the one in question, where something that depends on the place in the batch may be zero, and of
    different sizes, so that each sees the others where a largest or smallest entry of the whole batch counts. Two at
    first: where rows meet every other row, what many copies take may be beyond all bounds.
    """
    size = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    typical = size.mean()
    other = sampled.point + scattered_from(2.0**-8 * (size + torch.where(typical > 0, typical, 1.0)), count)
    kinds = other * _factors(sampled, copied)
    alone = torch.stack([single(sampled, kind.clone()) for kind in kinds])
    if identical(alone[0], alone[1]):  # where nothing moves, nobody can tell whether copies hear each other
        return math.inf
    apart = 0.0
    for many in (len(_FACTORS), count):
        places = torch.arange(many, device=other.device) % len(_FACTORS)
        places[-1] = 1  # so that they read differently from the end, which a forward may begin at
        together = _side_by_side(sampled, stacked(sampled, kinds[places]), copied)
        apart = math.inf if together is None else max(apart, units_apart(sampled, together, alone[places]))
        if apart > ROUGH:
            break
    return apart


def _factors(sampled: Sampler, copied: Sequence[bool]) -> Tensor:
    """Return the factors of what is copied, 1 for everything else; (factors, 1 or n)."""
    factors = sampled.point.new_tensor(_FACTORS).unsqueeze(1)
    if all(copied):
        return factors
    sizes = [coordinates_in(primal.tensor) for primal in sampled.problem.primals]
    moving = sampled.point.new_tensor(copied, dtype=torch.bool).repeat_interleave(
        sampled.point.new_tensor(sizes, dtype=torch.long)
    )
    return torch.where(moving, factors, 1.0)


def _side_by_side(sampled: Sampler, copies: Sequence[Tensor], copied: Sequence[bool]) -> Tensor | None:
    count = copies[0].shape[0]
    inputs = [
        many.reshape(-1, *many.shape[2:]) if mine else many[0].clone()
        for many, mine in zip(copies, copied, strict=True)
    ]
    try:
        found = {output.name: output.tensor for output in call(sampled.problem, inputs)}
    except EvaluationError:
        return None
    outputs = [found[name] for name in sampled.names if name in found]
    if any(
        output.shape != (count * shape[0], *shape[1:]) for output, shape in zip(outputs, sampled.shapes, strict=False)
    ):
        return None
    return joined(sampled, [each.reshape(count, -1, *each.shape[1:]) for each in outputs])


@contextmanager
def quietly() -> Iterator[None]:
    """Record no graph and print no warnings, as where something is only tried."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def stacked(sampled: Sampler, points: Tensor) -> list[Tensor]:
    """Return one tensor per primal, with the points along a new first dimension; none shares memory with them."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    sizes = [coordinates_in(primal) for primal in primals]
    pieces = [points] if len(primals) == 1 else torch.split(points, sizes, dim=1)
    found = []
    for piece, primal in zip(pieces, primals, strict=True):
        shape = (points.shape[0], *primal.shape, *((2,) if primal.is_complex() else ()))
        real = piece.reshape(shape).clone(memory_format=torch.contiguous_format)
        values = torch.view_as_complex(real) if primal.is_complex() else real
        found.append(values.to(device=primal.device, dtype=primal.dtype))
    return found


def joined(sampled: Sampler, outputs: Sequence[Tensor]) -> Tensor:
    """Return the outputs' real coordinates, (N, m)."""
    flat = [real_view(output).reshape(output.shape[0], -1).to(torch.float64) for output in outputs]
    whole = torch.cat(flat, dim=1) if len(flat) > 1 else flat[0]
    return whole if sampled.kept is None else whole[:, sampled.kept]
