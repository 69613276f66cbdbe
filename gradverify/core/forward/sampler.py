"""The forward as a function from input to output coordinates, evaluated at one point at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from gradverify.arithmetic.narrowing import Narrowing
from gradverify.arithmetic.unrounded import WIDE
from gradverify.core.model.coordinates import Block, blocks, flatten, is_part, real_view, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.limits import HELD, REMEMBERED
from gradverify.core.model.magnitudes import (
    any_set,
    equal_or_nan,
    finite_size,
    identical,
    largest_in_tensor,
    size_of_number,
    unit_roundoff,
)
from gradverify.core.model.problem import Problem, call, fresh, laid_out_like, overlaps
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.interception import rounding_in_low_precision
from gradverify.nested import Named

_HUGE = 2.0**20  # magnitude of outputs from which on they may be the fill value of a mask
_NEARBY = 2.0**-12  # relative distance of the point at which low precision and constants are looked for


@dataclass(slots=True, kw_only=True)
class VectorisationState:
    """State of evaluating many points in one call; mutable."""

    ways: list[str] = field(default_factory=lambda: ["batch", "vmap", "batch in part"])  # that have not failed yet
    calls: int = 0  # calls of many points so far
    shares_calls: bool = False  # True once an evaluation of many points took one call
    # Largest difference from single calls in unit roundoffs, by way and by test, and between two single calls; infinite
    # if it was more than rounding.
    differences: dict[str, float] = field(default_factory=dict)
    known: tuple[Tensor, Tensor] | None = None  # two test points, and their outputs

    def note(self, way: str, units: float) -> None:
        """Raise the difference of a way or a test to at least `units`."""
        self.differences[way] = max(units, self.differences.get(way, 0.0))

    @property
    def largest_difference(self) -> float:
        """Largest finite difference from single calls so far, in unit roundoffs."""
        return max((units for units in self.differences.values() if units < math.inf), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """The forward, to be evaluated around one point."""

    problem: Problem
    point: Tensor  # (n,) float64: the coordinates of all primals
    value: Tensor  # (m,) float64: the coordinates of all verified outputs at the point
    own_size: Tensor  # (m,) magnitude of each output; of a complex one, the larger of its two parts
    unit: Tensor  # (m,) unit roundoff of each output's own dtype
    size: Tensor  # (m,) the largest finite magnitude in each output's tensor
    inputs: tuple[Block, ...]
    outputs: tuple[Block, ...]
    names: tuple[str, ...]  # of the verified outputs
    shapes: tuple[torch.Size, ...]  # of the verified outputs
    dtypes: frozenset[torch.dtype]  # dtypes of the gradients, which determine the tolerances
    with_graph: bool = False  # True if a graph is recorded at every call: the outputs depend on it
    is_finer: bool = False  # True if the forward is sampled in finer dtypes than these; see `repeatable`
    computed_eps: float = 0.0  # eps of the coarsest dtype that casts left out round the gradients to, 0 without them
    only_casts_round: bool = False  # True if backward without such casts has the digits of these dtypes
    narrowing_eps: float = 0.0  # eps of the coarsest dtype that the forward casts other numbers to, 0 if it does not
    rounding_size: Callable[[], float] = lambda: 0.0  # rounding of the largest low-precision number in forward, or 0
    vectorisation: VectorisationState = field(default_factory=VectorisationState)
    # (m,) selected output coordinates, None: all; `value`, `own_size`, `unit` and `size` are theirs
    selected: Tensor | None = None
    evaluated: dict[bytes, Tensor | None] = field(default_factory=dict)  # outputs by the bytes of a point; mutable

    @property
    def eps(self) -> float:
        """Largest eps of the gradients' dtypes."""
        return max(torch.finfo(dtype).eps for dtype in self.dtypes)

    @property
    def backward_eps(self) -> float:
        """The `gradient_eps` if the forward is sampled in finer dtypes, else 0."""
        return self.gradient_eps if self.is_finer else 0.0

    @property
    def gradient_eps(self) -> float:
        """Largest eps of the dtypes that the gradients have and, if known, are computed in."""
        return max(self.eps, self.computed_eps)

    @property
    def largest_number(self) -> float:
        """Largest finite number of the gradients' dtypes if the forward is sampled in finer ones, else infinite."""
        return min((torch.finfo(dtype).max for dtype in self.dtypes if self.is_finer), default=math.inf)

    @property
    def smallest_number(self) -> float:
        """Smallest positive number of the gradients' dtypes if the forward is sampled in finer ones, else 0."""
        limits = map(torch.finfo, self.dtypes if self.is_finer else ())
        return max((limit.smallest_normal * limit.eps for limit in limits), default=0.0)


def sampler(problem: Problem, tape: Tape) -> Sampler:
    """Return the sampler of the tape's outputs; it samples with a graph unless calls without one give the same."""
    tensors = [primal.tensor for primal in problem.primals]
    recorded = flatten(output.tensor for output in tape.outputs).clone()
    outputs = blocks(tape.outputs)
    draft = Sampler(
        problem=problem,
        point=flatten(tensors),
        value=recorded,
        own_size=size_of_number(recorded, outputs),
        unit=unit_roundoff(tape.outputs, recorded),
        size=largest_in_tensor(recorded, outputs),
        inputs=blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals),
        outputs=outputs,
        names=tuple(output.name for output in tape.outputs),
        shapes=tuple(output.tensor.shape for output in tape.outputs),
        dtypes=frozenset(tensor.dtype for tensor in tensors),
    )
    casts = Narrowing(leave_out=False)
    with casts:
        rerun = _run(draft, [fresh(tensor) for tensor in tensors])
    with_graph = rerun is None or not identical(rerun, recorded)
    found = replace(
        draft,
        with_graph=with_graph,
        narrowing_eps=casts.eps,
        rounding_size=cache(lambda: rounding_in_low_precision(lambda: _run(draft, _at_nearby_point(draft)))),
    )
    return replace(found, size=_varying_size(found)) if any_set(found.size >= _HUGE) else found


def _varying_size(sampled: Sampler) -> Tensor:
    """Return for each output the largest magnitude among the outputs of its tensor that are not constant; (m,).

    The fill value of a mask is constant, and no other output has been computed from it, however large it is. If all
    outputs of a tensor are constant, all count.
    """
    nearby_outputs = _run(sampled, _at_nearby_point(sampled))
    if nearby_outputs is None:
        return sampled.size
    found = largest_in_tensor(torch.where(nearby_outputs == sampled.value, 0.0, sampled.value), sampled.outputs)
    return torch.where(found > 0, found, sampled.size)


def _at_nearby_point(sampled: Sampler) -> list[Tensor]:
    """Return a point close by, at which also coordinates that are zero have moved, as separate tensors."""
    size = finite_size(sampled.point)
    distance = _NEARBY * (size + size.mean().clamp(min=_NEARBY))
    return _at_point(sampled, sampled.point + random_magnitudes_from(distance, 0))


def difference_in_units(sampled: Sampler, one: Tensor, other: Tensor) -> float:
    """Return the largest difference of outputs (..., m) in unit roundoffs, inf if only one of a pair is NaN."""
    if identical(one, other):
        return 0.0
    units = (one - other).abs() / (sampled.unit * other.abs())
    return float(units.masked_fill(equal_or_nan(one, other), 0.0).nan_to_num(math.inf, math.inf).max())


def magnitudes(sampled: Sampler, values: Tensor) -> Tensor:
    """Return for each selected output the largest finite magnitude among `values` (m,) in its tensor; (m,)."""
    if sampled.selected is None:
        return largest_in_tensor(values, sampled.outputs)
    every = values.new_zeros(max(block.stop for block in sampled.outputs))
    every[sampled.selected] = values
    return largest_in_tensor(every, sampled.outputs)[sampled.selected]


def output_indices(sampled: Sampler, outputs: Tensor | slice) -> Tensor:
    """Return the indices among all output coordinates of `outputs`, indices among the selected ones; (k,)."""
    if sampled.selected is not None:
        return sampled.selected[outputs]
    if isinstance(outputs, slice):
        return torch.arange(len(sampled.value), device=sampled.value.device)[outputs]
    return outputs


def restricted_to_outputs(sampled: Sampler, outputs: Tensor | slice) -> Sampler:
    """Return a sampler restricted to some of the output coordinates."""
    return replace(
        sampled,
        value=sampled.value[outputs],
        own_size=sampled.own_size[outputs],
        unit=sampled.unit[outputs],
        size=sampled.size[outputs],
        selected=output_indices(sampled, outputs),
    )


def outputs_near(sampled: Sampler, displacement: Tensor) -> Tensor:
    """Return the outputs at point + displacement, (m,); `displacement` is (n,) float64."""
    return outputs_at(sampled, sampled.point + displacement)


def outputs_at(sampled: Sampler, point: Tensor, into: Tensor | None = None) -> Tensor:
    """Return the outputs at one point (n,), which may be overwritten; (m,), written to `into` if it is given.

    At a small point the forward is called once only: later calls return the same outputs.
    """
    into = torch.empty_like(sampled.value) if into is None else into
    if point.numel() > REMEMBERED or not point.is_cpu:
        found = _run(sampled, _at_point(sampled, point))
        # Copied, since a forward may return the same buffer at every call.
        return into.fill_(torch.nan) if found is None else into.copy_(found)
    key = point.numpy().tobytes()
    if key not in sampled.evaluated:
        found = _run(replace(sampled, selected=None), _at_point(sampled, point))
        if len(sampled.evaluated) * (len(point) + (0 if found is None else len(found))) > HELD:
            sampled.evaluated.clear()
        sampled.evaluated[key] = None if found is None else found.clone()
    found = sampled.evaluated[key]
    if found is None:
        return into.fill_(torch.nan)
    return into.copy_(found if sampled.selected is None else found[sampled.selected])


def change_at(sampled: Sampler, point: Tensor, into: Tensor) -> Tensor:
    """Write f(point) - f(x) to `into` (m,) and return it; the point (n,) may be overwritten."""
    found = _run(sampled, _at_point(sampled, point))
    return into.fill_(torch.nan) if found is None else torch.sub(found, sampled.value, out=into)


def is_double(sampled: Sampler) -> bool:
    """Return True if all inputs are float64 or complex128, so that float64 points need no rounding."""
    return {primal.tensor.dtype for primal in sampled.problem.primals} <= WIDE


def first_cotangent(sampled: Sampler) -> int:
    """Return the first cotangent coordinate, the number of coordinates if there are none: a vjp is linear in them."""
    own = len(sampled.problem.primals) - sampled.problem.cotangents
    return min((block.start for block in sampled.inputs if block.tensor >= own), default=len(sampled.point))


def first_linear(sampled: Sampler) -> int:
    """Return the first coordinate in which the function is linear and one step is enough: none unless in float64."""
    return first_cotangent(sampled) if is_double(sampled) else len(sampled.point)


def representable(sampled: Sampler, columns: Tensor, values: Tensor) -> Tensor:
    """Return values (..., k) of the input coordinates `columns` (k,), rounded to their own dtypes."""
    if is_double(sampled):
        return values
    rounded = values.clone()
    for block in sampled.inputs:
        real = real_view(sampled.problem.primals[block.tensor].tensor).dtype
        inside = (columns >= block.start) & (columns < block.stop)
        rounded[..., inside] = values[..., inside].to(real).to(torch.float64)
    return rounded


def _run(sampled: Sampler, copies: Sequence[Tensor]) -> Tensor | None:
    """Return the selected outputs at these primals, (m,), possibly in memory of the forward.

    None if forward raises, or if an output is missing or has another shape.
    """
    try:
        if sampled.with_graph:
            with torch.enable_grad():
                outputs = call(sampled.problem, [copy.requires_grad_().clone() for copy in copies])
        else:
            with torch.no_grad():
                outputs = call(sampled.problem, copies)
    except EvaluationError:
        return None
    found = {output.name: output.tensor for output in outputs}
    tensors = [found[name] for name in sampled.names if name in found]
    if tuple([tensor.shape for tensor in tensors]) != sampled.shapes:
        return None
    vector = flatten(tensors)
    return vector if sampled.selected is None else vector[sampled.selected]


def _at_point(sampled: Sampler, point: Tensor) -> list[Tensor]:
    """Return a point as separate tensors with the primals' dtypes and devices, and with their strides if possible."""
    primals = [primal.tensor for primal in sampled.problem.primals]
    return [_laid_out(shaped, primal) for shaped, primal in zip(unflatten(point, primals), primals, strict=True)]


def _laid_out(shaped: Tensor, like: Tensor) -> Tensor:
    if like.is_contiguous() or overlaps(like):
        # Kernels may expect memory that starts at offset 0, aligned like an allocation.
        return shaped.clone() if is_part(shaped) else shaped
    return laid_out_like(like).copy_(shaped)
