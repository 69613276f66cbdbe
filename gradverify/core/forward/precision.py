"""The precision of a forward: what it rounds its inputs to, and the same function sampled in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.length_scales import own_or_shared, scales
from gradverify.core.forward.repeatable import Repeatable
from gradverify.core.forward.sampler import Sampler, along, sampler
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import all_set, identical
from gradverify.core.model.problem import Primal, Problem
from gradverify.core.model.tape import record
from gradverify.errors import EvaluationError

_NARROW = (torch.bfloat16, torch.float16, torch.float32)
_BELOW, _ABOVE = 0.49, 0.51  # of the way to the next number: the first rounds back, the second on
_HALF = 0.5  # of the entries go there at a time
_TRIALS, _OF_FEW, _FEW = 4, 24, 16  # at every place, more where there are fewer outputs than that
_HELD = 2_000_000  # numbers held at a time
_OFTEN = 6  # times outputs must feel the next numbers: that each time it is just there would be a rare accident
_MOVED, _TIMES = 2.0, 8  # units of rounding by which all inputs are moved, and how often
_APART = 32.0  # units of rounding of the largest output, by which the two forwards may be apart


def as_rounded(steady: Repeatable, sampled: Sampler) -> Repeatable | None:
    """Return the problem as one of inputs in the precision that `sampled`, its forward, rounds them to.

    None where it rounds none of them. Backward is asked for numbers that it can tell apart, too.
    """
    if not len(sampled.point):  # an input without entries
        return None
    rounded = {block.tensor: _rounded_to(sampled, block) for block in sampled.inputs}
    dtypes = [rounded.get(number) for number in range(len(sampled.problem.primals))]
    if all(dtype is None for dtype in dtypes):
        return None
    try:
        return _with(steady, sampled, dtypes)
    except EvaluationError:
        return None


def in_double(steady: Repeatable) -> Repeatable:
    """Return the problem with its forward sampled in float64, or as it is where that is not possible."""
    dtypes = frozenset(primal.tensor.dtype for primal in steady.problem.primals)
    if not dtypes or not dtypes <= set(_NARROW):
        return steady
    eps = max(torch.finfo(dtype).eps for dtype in dtypes)
    least = max(torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps for dtype in dtypes)
    for function in (steady.problem.function, steady.problem.finer):
        wide = None if function is None else _sampled(replace(steady.problem, function=function))
        if wide is not None and _alike(wide, steady.sampled, eps):
            return replace(steady, sampled=replace(wide, dtypes=dtypes, coarse=eps, least=least))
    return steady


def _rounded_to(sampled: Sampler, block: Block) -> torch.dtype | None:
    """Return the coarsest precision that the forward rounds this input to, None where it does not."""
    own = sampled.problem.primals[block.tensor].tensor.dtype
    if not own.is_floating_point:
        return None
    eps = torch.finfo(own).eps
    return next((dtype for dtype in _NARROW if torch.finfo(dtype).eps > eps and _rounds(sampled, block, dtype)), None)


def _rounds(sampled: Sampler, block: Block, dtype: torch.dtype) -> bool:
    """Tell whether the forward rounds this input to that precision, here and at some other places."""
    generator = torch.Generator().manual_seed(0)
    shared, point = scales(sampled).shared[block.coordinates], sampled.point[block.coordinates]
    trials = _TRIALS if len(sampled.value) >= _FEW else _OF_FEW
    trials = max(1, min(trials, _HELD // (len(sampled.point) + len(sampled.value))))
    moved = 0
    for away in (torch.zeros_like(shared), shared, shared.clamp(min=1.0)):
        there = point + scattered(away, generator)
        number = there.to(dtype).to(torch.float64)
        here, same = _at_values(sampled, block, torch.stack([there, number]))
        if not identical(same, here):
            return False
        some = torch.rand(trials, len(number), generator=generator).to(number.device) < _HALF
        onwards = torch.where(some, _to_the_next(number, dtype), 0.0)
        below, above, at_next = (
            _at_values(sampled, block, number + share * onwards) for share in (_BELOW, _ABOVE, 1.0)
        )
        if not (identical(below, here.expand_as(below)) and identical(above, at_next)):
            return False
        moved += int(((at_next != here) & at_next.isfinite()).sum())
    return moved >= _OFTEN


def _to_the_next(number: Tensor, dtype: torch.dtype) -> Tensor:
    """Return how far it is from numbers of that precision to the next ones away from zero, 0 from zero itself."""
    _, power = torch.frexp(number)
    limits = torch.finfo(dtype)
    apart = torch.ldexp(torch.full_like(number, limits.eps / 2), power).clamp(min=limits.smallest_normal * limits.eps)
    return torch.where(number == 0, 0.0, apart.copysign(number))


def _at_values(sampled: Sampler, block: Block, values: Tensor) -> Tensor:
    """Return the outputs where one input has these values (N, k); (N, m)."""
    points = sampled.point.repeat(len(values), 1)
    points[:, block.coordinates] = values
    found = sampled.value.new_empty(len(values), len(sampled.value))
    evaluate(sampled, points, found)
    return found


def _with(steady: Repeatable, sampled: Sampler, dtypes: Sequence[torch.dtype | None]) -> Repeatable:
    """Return the problem with inputs in these precisions where there is one; raises EvaluationError."""
    asked = [
        primal.tensor if dtype is None or not _is_coarser(dtype, primal.tensor.dtype) else primal.tensor.to(dtype)
        for primal, dtype in zip(steady.problem.primals, dtypes, strict=True)
    ]
    moved = [
        tensor.to(primal.tensor.dtype if dtype is None else dtype)
        for tensor, primal, dtype in zip(asked, sampled.problem.primals, dtypes, strict=True)
    ]
    backward, forward = _at(steady.problem, asked), _at(sampled.problem, moved)
    around = sampler(forward, record(forward))
    answered, coarsest = _coarsest(asked), max((dtype for dtype in dtypes if dtype is not None), key=_eps)
    limits = torch.finfo(answered)
    within, on_its_way = _eps(answered) > _eps(_coarsest(moved)), around.narrow
    around = replace(
        around,
        unit=_unit(around, coarsest),
        dtypes=frozenset(tensor.dtype for tensor in asked),
        coarse=limits.eps if within else 0.0,
        least=limits.smallest_normal * limits.eps if within else 0.0,
        rounds_to=coarsest,
        narrow=lambda: eps if (eps := on_its_way()) > _eps(coarsest) else 0.0,  # what is rounded so, once
    )
    return Repeatable(problem=backward, tape=record(backward), sampled=around)


def _at(problem: Problem, tensors: Sequence[Tensor]) -> Problem:
    """Return the problem with inputs of other dtypes, which the function still gets in those it knows."""
    known, function = problem.primals, problem.function

    def called(*given: Tensor) -> Any:
        return function(*(_as_known(primal, tensor) for primal, tensor in zip(known, given, strict=True)))

    primals = [replace(primal, tensor=tensor, project=None) for primal, tensor in zip(known, tensors, strict=True)]
    return replace(problem, function=called, finer=None, primals=tuple(primals))


def _as_known(primal: Primal, tensor: Tensor) -> Tensor:
    """Return what the function gets where this is the input: in its own dtype, and projected in that."""
    own = tensor.to(primal.tensor.dtype)
    return own if primal.project is None else primal.project(own)


def _unit(around: Sampler, dtype: torch.dtype) -> Tensor:
    """Return the outputs' unit roundoff: that of the coarsest precision, up to this one, that holds all of a tensor."""
    unit = around.unit.clone()
    for block in around.outputs:
        values = around.value[block.coordinates]
        held = [each for each in _NARROW if _eps(each) <= _eps(dtype) and identical(values.to(each).double(), values)]
        if held:
            unit[block.coordinates] = torch.maximum(unit[block.coordinates], unit.new_tensor(_eps(held[0]) / 2))
    return unit


def _coarsest(tensors: Sequence[Tensor]) -> torch.dtype:
    return max((tensor.dtype for tensor in tensors), key=_eps)


def _is_coarser(one: torch.dtype, other: torch.dtype) -> bool:
    return _eps(one) > _eps(other)


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def _sampled(problem: Problem) -> Sampler | None:
    primals = tuple(replace(primal, tensor=primal.tensor.double()) for primal in problem.primals)
    wide = replace(problem, primals=primals)
    try:
        tape = record(wide)
        if any(output.tensor.dtype is not torch.float64 for output in tape.outputs):
            return None  # it computes in low precision whatever it gets
        return sampler(wide, tape)
    except EvaluationError:
        return None


def _alike(wide: Sampler, narrow: Sampler, eps: float) -> bool:
    """Tell whether two forwards give the same outputs but for rounding, inside or as if of the inputs."""
    if (wide.names, wide.shapes) != (narrow.names, narrow.shapes):
        return False
    apart = (wide.value - narrow.value).abs()
    near = (apart <= _APART * eps * wide.size) | (wide.value == narrow.value)
    near |= wide.value.isnan() & narrow.value.isnan()
    return all_set(near) or all_set(near | (apart <= _moved(wide, eps)))


def _moved(wide: Sampler, eps: float) -> Tensor:
    """Return how far the outputs move where all inputs are off by about as much as rounding, (m,)."""
    generator, length = torch.Generator().manual_seed(0), own_or_shared(scales(wide))
    moved = [(along(wide, scattered(_MOVED * eps * length, generator)) - wide.value).abs() for _ in range(_TIMES)]
    return torch.stack(moved).nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
