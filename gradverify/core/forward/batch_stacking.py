"""Many points in one call: copies of the inputs stacked along their first dimension, the batch of the outputs.

This serves functions of a batch, including hand-written ones. Stacking is used only as long as each copy gives the
outputs of a single call, tested at points where an influence of one copy on another would show.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.forward.sampler import Sampler, difference_in_units, outputs_at
from gradverify.core.model.coordinates import coordinates_in, real_view, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.limits import MIN_BATCHED
from gradverify.core.model.magnitudes import any_set, finite_size, identical
from gradverify.core.model.problem import call
from gradverify.core.tuning import LOST_UNITS
from gradverify.errors import EvaluationError

# Raised by functions that refuse inputs of another shape.
SHAPE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
_BESIDE, _COPIES = "beside the point", "copies of test points"


class NotStackableError(Exception):
    """This way of stacking does not serve these points, but may serve others."""


def stacked_with_point(sampled: Sampler, points: Tensor, first: Tensor) -> Tensor | None:
    """Return the outputs at points (N, n), stacked in one call; (N, m). The last point must be the sampler's own.

    For functions whose inputs all have the outputs' batch. Nothing is tested but the first row, known to be `first`
    (m,), and the last: None if they differ by more than rounding, or if the points cannot be stacked.
    """
    if sampled.with_graph or sampled.problem.seed is not None:
        return None
    copied = _matching(sampled)
    if not all(copied) or not _may_be_longer(sampled):
        return None
    try:
        with quietly():
            found = _call_stacked(sampled, stacked(sampled, points), copied)
    except SHAPE_ERRORS:
        return None
    if found is None or found.shape != (points.shape[0], sampled.value.numel()):
        return None
    difference = difference_in_units(sampled, found[-1], sampled.value)
    rounding = LOST_UNITS * sampled.unit * torch.maximum(first.abs().nan_to_num(0.0).amax(), sampled.size)
    if difference > LOST_UNITS or any_set((found[0] - first).abs() > rounding):
        return None
    sampled.vectorisation.note(_BESIDE, difference)
    return found


def stack_batch(sampled: Sampler, points: Tensor, most: float) -> Tensor | None:
    """Return the outputs at points (N, n), with every input stacked that has the outputs' batch dimension; (N, m).

    They differ from single calls by at most `most` unit roundoffs. None if stacking fails for all points; raises
    NotStackableError if it may serve others.
    """
    if len({shape[0] if shape else 0 for shape in sampled.shapes}) != 1 or not _may_be_longer(sampled):
        return None
    copied = _matching(sampled)
    state = sampled.vectorisation
    if len(copied) > 1 and all(copied) and "vmap" in state.ways and state.differences.get("vmap", 0.0) <= most:
        raise NotStackableError  # equal lengths need not be a common batch: factors of a matrix product have none
    if not all(copied) and any_set(_is_moved(sampled, points)[:, _others(copied)]):
        raise NotStackableError
    differences = state.differences
    if _COPIES not in differences:
        units = _stacking_error(sampled, len(points), copied)
        differences[_COPIES] = units if units <= LOST_UNITS else math.inf
        state.calls += 2  # the test has compared all rows of two calls
    if differences[_COPIES] <= most:
        return _between_known_rows(sampled, points, copied, most)
    if differences[_COPIES] < math.inf:
        raise NotStackableError
    return None


def stack_batch_in_part(sampled: Sampler, points: Tensor, most: float) -> Tensor | None:
    """Return the outputs as `stack_batch` does, but evaluate points that move any other input one by one; (N, m)."""
    stackable = ~_is_moved(sampled, points)[:, _others(_matching(sampled))].any(dim=1)
    if int(stackable.sum()) < MIN_BATCHED:
        raise NotStackableError
    found = stack_batch(sampled, points[stackable], most)
    if found is None:
        return None
    values = found.new_empty(len(points), found.shape[1])
    values[stackable] = found
    for place in (~stackable).nonzero().squeeze(1).tolist():
        values[place] = outputs_at(sampled, points[place].clone())
    return values


def _may_be_longer(sampled: Sampler) -> bool:
    """Return True if inputs of another length are safe.

    Fixed tensors may hold lengths or offsets that a kernel trusts, and an out-of-bounds read on a GPU may break the
    whole process.
    """
    has_fixed_tensors = any(isinstance(bound.value, Tensor) for bound in sampled.problem.bound)
    return not has_fixed_tensors and all(primal.tensor.device.type == "cpu" for primal in sampled.problem.primals)


def _is_moved(sampled: Sampler, points: Tensor) -> Tensor:
    """Mask of primals that differ from the sampler's point; (N, primals)."""
    sizes = [coordinates_in(primal.tensor) for primal in sampled.problem.primals]
    return torch.stack([piece.any(dim=1) for piece in torch.split(points != sampled.point, sizes, dim=1)], dim=1)


def _matching(sampled: Sampler) -> tuple[bool, ...]:
    """True for each primal whose first dimension is as long as that of all outputs."""
    sizes = {shape[0] if shape else 0 for shape in sampled.shapes}
    shapes = (primal.tensor.shape for primal in sampled.problem.primals)
    return tuple(len(sizes) == 1 and len(shape) > 0 and shape[0] in sizes for shape in shapes)


def _others(matching: Sequence[bool]) -> list[int]:
    return [number for number, matches in enumerate(matching) if not matches]


def _between_known_rows(sampled: Sampler, points: Tensor, copied: tuple[bool, ...], most: float) -> Tensor | None:
    """Return the outputs at points (N, n) stacked between the two test points, (N, m), as `stack_batch` does.

    With other rows a forward may do something else: drop those beyond a capacity, or branch on all of them.
    """
    assert sampled.vectorisation.known is not None
    test_points, outputs = sampled.vectorisation.known
    rows = torch.cat([test_points[:1], points, test_points[1:]])
    found = _call_stacked(sampled, stacked(sampled, rows), copied)
    if found is None:
        return None
    expected = outputs if sampled.selected is None else outputs[:, sampled.selected]
    difference = difference_in_units(sampled, found[[0, -1]], expected)
    if difference > LOST_UNITS:
        return None
    sampled.vectorisation.note(_COPIES, difference)
    if difference > most:
        raise NotStackableError
    return found[1:-1]


def _stacking_error(sampled: Sampler, count: int, copied: tuple[bool, ...]) -> float:
    """Return by how many unit roundoffs stacked copies of two test points differ from single calls, at most.

    The test points are not the sampler's point, at which a term that depends on the position in the batch may vanish.
    Their stacked inputs differ by factors of about 2, so that a maximum or minimum over the whole batch shows, and a
    ratio. Two copies are tested before `count` copies: if rows interact in pairs, the cost grows with the square.
    """
    test_points = _test_points(sampled, count, copied)
    every, outputs = replace(sampled, selected=None), max(block.stop for block in sampled.outputs)
    known = torch.stack([outputs_at(every, each.clone(), each.new_empty(outputs)) for each in test_points])
    sampled.vectorisation.known = test_points, known
    single_outputs = known if sampled.selected is None else known[:, sampled.selected]
    if identical(single_outputs[0], single_outputs[1]):  # equal outputs cannot show an influence between copies
        return math.inf
    difference = 0.0
    for copy_count in (2, count):
        places = torch.arange(copy_count, device=test_points.device) % 2
        places[-1] = 1  # not a palindrome, so that a reversal of the batch shows
        stacked_outputs = _call_stacked(sampled, stacked(sampled, test_points[places]), copied)
        difference = (
            math.inf
            if stacked_outputs is None
            else max(difference, difference_in_units(sampled, stacked_outputs, single_outputs[places]))
        )
        if difference > LOST_UNITS:
            break
    return difference


def _test_points(sampled: Sampler, count: int, copied: Sequence[bool]) -> Tensor:
    """Return a point near the sampler's and about twice one on its other side; only `copied` inputs move; (2, n)."""
    size = finite_size(sampled.point)
    typical = size.mean()
    aside = random_magnitudes_from(2.0**-8 * (size + torch.where(typical > 0, typical, 1.0)), count)
    factors = 2.0 + random_magnitudes_from(torch.full_like(aside, 0.25), 1)  # unlike, so that ratios differ
    sizes = [coordinates_in(primal.tensor) for primal in sampled.problem.primals]
    is_copied = sampled.point.new_tensor(copied, dtype=torch.bool).repeat_interleave(
        sampled.point.new_tensor(sizes, dtype=torch.long)
    )
    test_points = torch.stack([sampled.point + aside, (sampled.point - aside) * factors])
    return torch.where(is_copied, test_points, sampled.point)


def _call_stacked(sampled: Sampler, copies: Sequence[Tensor], copied: Sequence[bool]) -> Tensor | None:
    """Return the outputs of one call with the `copied` inputs stacked, None if it raises or shapes differ; (N, m)."""
    count = copies[0].shape[0]
    inputs = [
        points.reshape(-1, *points.shape[2:]) if is_copied else points[0].clone()
        for points, is_copied in zip(copies, copied, strict=True)
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
    return joined(sampled, [output.reshape(count, -1, *output.shape[1:]) for output in outputs])


@contextmanager
def quietly() -> Iterator[None]:
    """Record no graph and print no warnings, for calls that are only tried."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


def stacked(sampled: Sampler, points: Tensor) -> list[Tensor]:
    """Return one new tensor per primal, with the points (N, n) along a new first dimension."""
    tensors = unflatten(points, [primal.tensor for primal in sampled.problem.primals])
    return [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]


def joined(sampled: Sampler, outputs: Sequence[Tensor]) -> Tensor:
    """Return the real coordinates of the outputs looked at; (N, m)."""
    flat = [real_view(output).reshape(output.shape[0], -1).to(torch.float64) for output in outputs]
    values = torch.cat(flat, dim=1) if len(flat) > 1 else flat[0]
    return values if sampled.selected is None else values[:, sampled.selected]
