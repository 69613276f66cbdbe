"""The forward as a function of its real coordinates, sampled one moved coordinate at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache

import torch
from torch import Tensor

from gradverify.core.model.cast_trace import coarsest
from gradverify.core.model.coordinates import Block, blocks, coordinates_in, flatten, real_view, unflatten
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.magnitudes import any_set, identical, largest, most, unit_roundoff
from gradverify.core.model.problem import Named, Problem, call, fresh, overlaps
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError

_HUGE = 2.0**20  # outputs from which on they may be what a mask is filled with
_ASIDE = 2.0**-12  # how far from the point a forward is watched, relative to each input
_LONG = 2e-3  # seconds of one call: many times what it takes to make a call at all


class Mode(Enum):
    """Whether the forward is sampled with or without recording a graph; the results may differ."""

    WITHOUT_GRAPH = "without"
    WITH_GRAPH = "with"


@dataclass(slots=True, kw_only=True)
class Together:
    """Which ways of evaluating many points in one call have not failed yet; its values change."""

    ways: list[str] = field(default_factory=lambda: ["batch", "vmap", "batch in part"])
    slow: bool = False  # a call takes so long that making many of them one saves nothing, and may take much memory
    calls: int = 0  # made so far
    # By how many units of rounding ways, and primals copied side by side, were seen to be apart from single calls;
    # infinite where that is too many.
    apart: dict[str | tuple[bool, ...], float] = field(default_factory=dict)

    @property
    def rough(self) -> float:
        """The most units of rounding that samples of one call may be apart from others."""
        return max((units for units in self.apart.values() if units < math.inf), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """The forward around one point."""

    problem: Problem
    point: Tensor  # (n,) float64: the coordinates of all primals
    value: Tensor  # (m,) float64: the coordinates of all judged outputs at the point
    unit: Tensor  # (m,) unit roundoff of each output's own dtype
    size: Tensor  # (m,) the largest finite magnitude in each output's tensor
    inputs: tuple[Block, ...]
    outputs: tuple[Block, ...]
    names: tuple[str, ...]  # outputs that are judged
    shapes: tuple[torch.Size, ...]
    mode: Mode
    dtypes: frozenset[torch.dtype]  # that backward answers in, and tolerances go by
    coarse: float = 0.0  # their eps, where the forward is sampled in a finer one; see `widened`
    least: float = 0.0  # and the smallest number that they hold
    rounds_to: torch.dtype | None = None  # what the forward rounds inputs to, where they are so; see `rounded`
    narrow: Callable[[], float] = lambda: 0.0  # eps of the coarsest precision that the forward rounds to on its way
    stair: Callable[[], float] = lambda: (
        0.0
    )  # and what it leaves of the largest number that is rounded to so few digits
    together: Together = field(default_factory=Together)
    kept: Tensor | None = None  # outputs looked at, None for all; `value` and `unit` are theirs

    @property
    def eps(self) -> float:
        """That of the coarsest dtype that backward answers in."""
        return max(torch.finfo(dtype).eps for dtype in self.dtypes)


def sampler(problem: Problem, tape: Tape) -> Sampler:
    """Return the sampler of the tape's outputs; raises EvaluationError when the forward does."""
    tensors = [primal.tensor for primal in problem.primals]
    recorded = flatten(output.tensor for output in tape.outputs).clone()
    outputs = blocks(tape.outputs)
    draft = Sampler(
        problem=problem,
        point=flatten(tensors),
        value=recorded,
        unit=unit_roundoff(tape.outputs, recorded),
        size=largest(recorded, outputs),
        inputs=blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals),
        outputs=outputs,
        names=tuple(output.name for output in tape.outputs),
        shapes=tuple(output.tensor.shape for output in tape.outputs),
        mode=Mode.WITHOUT_GRAPH,
        dtypes=frozenset(tensor.dtype for tensor in tensors),
    )
    begun = time.thread_time()  # of the processor: what else the machine does is no reason
    again = _run(draft, [fresh(tensor) for tensor in tensors])
    draft.together.slow = time.thread_time() - begun > _LONG
    own = {each.dtype for each in (*tensors, *(output.tensor for output in tape.outputs))}
    mode = Mode.WITHOUT_GRAPH if again is not None and identical(again, recorded) else Mode.WITH_GRAPH
    seen = cache(lambda: _narrowest(draft, own))
    found = replace(draft, mode=mode, narrow=lambda: seen()[0], stair=lambda: seen()[1])
    return found if most(found.size, outputs) < _HUGE else replace(found, size=_moving(found))


def _moving(sampled: Sampler) -> Tensor:
    """Return the largest magnitude in each output's tensor of those that move; where none does, of all; (m,).

    What a mask is filled with is no number that others have been computed from, however large.
    """
    size = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    aside = sampled.point + scattered_from(_ASIDE * (size + size.mean().clamp(min=_ASIDE)), 0)
    there = _run(sampled, _at_point(sampled, aside))
    if there is None:
        return sampled.size
    found = largest(torch.where(there == sampled.value, 0.0, sampled.value), sampled.outputs)
    return torch.where(found > 0, found, sampled.size)


def _narrowest(sampled: Sampler, own: Collection[torch.dtype]) -> tuple[float, float]:
    """Return what `coarsest` says of the forward, beside the point, which may happen to have few digits."""
    size = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    copies = _at_point(sampled, sampled.point + scattered_from(size * _ASIDE, 0))
    return coarsest(lambda: _run(sampled, copies), own)


def units_apart(sampled: Sampler, one: Tensor, other: Tensor) -> float:
    """Return by how many units of rounding outputs (..., m) differ at most; infinite where only one is a number."""
    if identical(one, other):
        return 0.0
    alike = (one == other) | (one.isnan() & other.isnan())
    units = (one - other).abs() / (sampled.unit * other.abs())
    return float(units.masked_fill(alike, 0.0).nan_to_num(math.inf, math.inf).max())


def magnitudes(sampled: Sampler, values: Tensor) -> Tensor:
    """Return for each output looked at the largest finite magnitude among `values` (m,) in its tensor; (m,)."""
    if sampled.kept is None:
        return largest(values, sampled.outputs)
    sizes = values.abs().nan_to_num(0.0, 0.0, 0.0)
    for block in sampled.outputs:
        mine = (sampled.kept >= block.start) & (sampled.kept < block.stop)
        if any_set(mine):
            sizes[mine] = sizes[mine].max()
    return sizes


def places(sampled: Sampler, outputs: Tensor | slice) -> Tensor:
    """Return where the outputs looked at, given by their numbers, stand among all outputs; (k,)."""
    if sampled.kept is not None:
        return sampled.kept[outputs]
    if isinstance(outputs, slice):
        return torch.arange(outputs.start, outputs.stop, device=sampled.value.device)
    return outputs


def focused(sampled: Sampler, outputs: Tensor | slice) -> Sampler:
    """Return a sampler that looks at some of the outputs only, given by their numbers."""
    return replace(
        sampled,
        value=sampled.value[outputs],
        unit=sampled.unit[outputs],
        size=sampled.size[outputs],
        kept=places(sampled, outputs),
    )


def along(sampled: Sampler, displacement: Tensor) -> Tensor:
    """Return the outputs at point + displacement, (m,); `displacement` is (n,) float64."""
    return single(sampled, sampled.point + displacement)


def single(sampled: Sampler, point: Tensor, into: Tensor | None = None) -> Tensor:
    """Return the outputs at one point (n,), which is used up; (m,), written to `into` where that is given."""
    found = _run(sampled, _at_point(sampled, point))
    into = torch.empty_like(sampled.value) if into is None else into
    # A forward may hand out one buffer again and again, so the numbers are copied.
    return into.fill_(torch.nan) if found is None else into.copy_(found)


def moved(sampled: Sampler, point: Tensor, into: Tensor) -> Tensor:
    """Return how far outputs at a point (n,), which is used up, are from those at the sampler's; (m,), in `into`."""
    found = _run(sampled, _at_point(sampled, point))
    return into.fill_(torch.nan) if found is None else torch.sub(found, sampled.value, out=into)


def is_double(sampled: Sampler) -> bool:
    """Tell whether the inputs hold what they are moved to as it is."""
    return {primal.tensor.dtype for primal in sampled.problem.primals} <= {torch.float64, torch.complex128}


def representable(sampled: Sampler, columns: Tensor, values: Tensor) -> Tensor:
    """Round values (..., k) of the coordinates `columns` (k,) to what their own dtype can hold."""
    if is_double(sampled):
        return values
    rounded = values.clone()
    for block in sampled.inputs:
        real = real_view(sampled.problem.primals[block.tensor].tensor).dtype
        mine = (columns >= block.start) & (columns < block.stop)
        rounded[..., mine] = values[..., mine].to(real).to(torch.float64)
    return rounded


def _run(sampled: Sampler, copies: Sequence[Tensor]) -> Tensor | None:
    """Return the outputs at these primals, (m,), in memory that may be the forward's; None where there are none."""
    try:
        if sampled.mode is Mode.WITH_GRAPH:
            with torch.enable_grad():
                outputs = call(sampled.problem, [copy.requires_grad_().clone() for copy in copies])
        else:
            with torch.no_grad():
                outputs = call(sampled.problem, copies)
    except EvaluationError:
        return None
    return _judged(sampled, outputs)


def _judged(sampled: Sampler, outputs: Sequence[Named]) -> Tensor | None:
    found = {output.name: output.tensor for output in outputs}
    kept = [found[name] for name in sampled.names if name in found]
    if tuple([tensor.shape for tensor in kept]) != sampled.shapes:
        return None
    vector = flatten(kept)
    return vector if sampled.kept is None else vector[sampled.kept]


def _at_point(sampled: Sampler, point: Tensor) -> list[Tensor]:
    return _tensors(point, [primal.tensor for primal in sampled.problem.primals])


def _tensors(point: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return one point as tensors of its own, in the primals' dtypes, devices and, where it can be, layouts."""
    pieces = [point] if len(like) == 1 else torch.split(point, [coordinates_in(tensor) for tensor in like])
    return [_laid_out(piece, tensor) for piece, tensor in zip(pieces, like, strict=True)]


def _laid_out(piece: Tensor, like: Tensor) -> Tensor:
    (shaped,) = unflatten(piece, [like])
    if like.is_contiguous() or overlaps(like):
        # Kernels may count on memory that is theirs from its start, and aligned as an allocation is.
        return shaped.clone() if shaped.storage_offset() else shaped
    copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return copy.copy_(shaped)
