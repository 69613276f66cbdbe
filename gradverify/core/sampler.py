"""The forward as a function of its real coordinates, sampled one moved coordinate at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.coordinates import Block, blocks, coordinates_in, flatten, real_view, unflatten, unravel
from gradverify.core.problem import Named, Problem, call, fresh
from gradverify.core.tape import Tape
from gradverify.errors import EvaluationError


class Mode(Enum):
    """Whether the forward is sampled with or without recording a graph; the results may differ."""

    WITHOUT_GRAPH = "without"
    WITH_GRAPH = "with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """The forward around one point."""

    problem: Problem
    point: Tensor  # (n,) float64: the coordinates of all primals
    value: Tensor  # (m,) float64: the coordinates of all judged outputs at the point
    unit: Tensor  # (m,) unit roundoff of each output's own dtype
    inputs: tuple[Block, ...]
    outputs: tuple[Block, ...]
    names: tuple[str, ...]  # outputs that are judged
    shapes: tuple[torch.Size, ...]
    offsets: tuple[int, ...]  # first coordinate of each primal
    mode: Mode


def sampler(problem: Problem, tape: Tape) -> Sampler:
    """Return the sampler of the tape's outputs; raises EvaluationError when the forward does."""
    tensors = [primal.tensor for primal in problem.primals]
    offsets, offset = [], 0
    for tensor in tensors:
        offsets.append(offset)
        offset += coordinates_in(tensor)
    recorded = flatten(output.tensor for output in tape.outputs).clone()
    draft = Sampler(
        problem=problem,
        point=flatten(tensors),
        value=recorded,
        unit=_unit_roundoff(tape.outputs).to(recorded.device),
        inputs=blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals),
        outputs=blocks(tape.outputs),
        names=tuple(output.name for output in tape.outputs),
        shapes=tuple(output.tensor.shape for output in tape.outputs),
        offsets=tuple(offsets),
        mode=Mode.WITHOUT_GRAPH,
    )
    again = at(draft, tensors)
    same = torch.equal(torch.nan_to_num(again), torch.nan_to_num(recorded))
    return draft if same else replace(draft, mode=Mode.WITH_GRAPH)


def at(sampled: Sampler, tensors: Sequence[Tensor]) -> Tensor:
    """Return the output coordinates for these primals, (m,) float64; NaN where the forward raises or changes shape."""
    return _run(sampled, [fresh(tensor) for tensor in tensors])


def magnitudes(sampled: Sampler, values: Tensor) -> Tensor:
    """Return for each output coordinate the largest finite magnitude among `values` (m,) in its tensor; (m,)."""
    sizes = values.abs().nan_to_num(0.0, 0.0, 0.0)
    for block in sampled.outputs:
        if sizes[block.coordinates].numel():
            sizes[block.coordinates] = sizes[block.coordinates].max()
    return sizes


def along(sampled: Sampler, displacement: Tensor) -> Tensor:
    """Return the outputs at point + displacement, (m,); `displacement` is (n,) float64."""
    like = [primal.tensor for primal in sampled.problem.primals]
    return at(sampled, unflatten(sampled.point + displacement, like))


def moved(sampled: Sampler, column: int, value: float) -> Tensor:
    """Return the outputs with the one coordinate `column` set to `value`, (m,)."""
    number = bisect_right(sampled.offsets, column) - 1
    copies = [
        _with_coordinate(primal.tensor, column - sampled.offsets[number], value)
        if place == number
        else fresh(primal.tensor)
        for place, primal in enumerate(sampled.problem.primals)
    ]
    return _run(sampled, copies)


def representable(sampled: Sampler, column: Tensor, values: Tensor) -> Tensor:
    """Round `values` to what the coordinate's own dtype can hold; (C, K) for columns (C,)."""
    dtypes = {primal.tensor.dtype for primal in sampled.problem.primals}
    if dtypes <= {torch.float64, torch.complex128}:
        return values
    rounded = values.clone()
    for block in sampled.inputs:
        real = real_view(sampled.problem.primals[block.tensor].tensor).dtype
        mine = (column >= block.start) & (column < block.stop)
        rounded[mine] = values[mine].to(real).to(torch.float64)
    return rounded


def _unit_roundoff(outputs: Sequence[Named]) -> Tensor:
    units = [
        torch.full((coordinates_in(output.tensor),), torch.finfo(output.tensor.dtype).eps / 2, dtype=torch.float64)
        for output in outputs
    ]
    return torch.cat(units) if units else torch.zeros(0, dtype=torch.float64)


def _run(sampled: Sampler, copies: Sequence[Tensor]) -> Tensor:
    try:
        if sampled.mode is Mode.WITH_GRAPH:
            with torch.enable_grad():
                outputs = call(sampled.problem, [copy.requires_grad_().clone() for copy in copies])
        else:
            with torch.no_grad():
                outputs = call(sampled.problem, copies)
    except EvaluationError:
        return torch.full_like(sampled.value, torch.nan)
    return _judged(sampled, outputs)


def _judged(sampled: Sampler, outputs: Sequence[Named]) -> Tensor:
    found = {output.name: output.tensor for output in outputs}
    kept = [found[name] for name in sampled.names if name in found]
    if tuple(tensor.shape for tensor in kept) != sampled.shapes:
        return torch.full_like(sampled.value, torch.nan)
    return flatten(kept).clone()  # a forward may hand out one buffer again and again


def _with_coordinate(tensor: Tensor, coordinate: int, value: float) -> Tensor:
    if tensor.is_contiguous() or 0 in tensor.stride():
        copy = tensor.clone(memory_format=torch.contiguous_format)
        real_view(copy).view(-1)[coordinate] = value
        return copy
    copy = fresh(tensor)
    view = real_view(copy)
    view[unravel(coordinate, view.shape)] = value
    return copy
