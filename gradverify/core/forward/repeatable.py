"""Forwards that can be differenced: repeatable, in float64, or with inputs in the dtype to which they are rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from gradverify.arithmetic.narrowing import WithoutNarrowing, eps_computed_in
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.noise import largest_change
from gradverify.core.forward.sampler import Sampler, outputs_at, outputs_near, sampler
from gradverify.core.forward.step_noise import rounding_on_the_way
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import forward_seed, generators_unused, random_magnitudes, seed_everywhere
from gradverify.core.model.limits import HELD
from gradverify.core.model.magnitudes import all_set, equal_or_nan, finite_size, identical, scales
from gradverify.core.model.problem import NARROW, Primal, Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.core.tuning import CONVINCING, EXAMINED, FEW, INPUT_EPS, LARGEST_CANCELLATION, SUM_UNITS
from gradverify.errors import EvaluationError
from gradverify.interception import DrawTrace

_BACK = 0.49  # of the gap to the next number: so far a number rounds back, and from the rest of the gap on to the next
_MAX_DIFFERENCE = 32.0  # eps of the largest output, by which the two forwards may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """A problem whose forward gives the same outputs at every call, with its recorded graph and its sampler."""

    problem: Problem
    tape: Tape
    sampled: Sampler


def made_repeatable(problem: Problem, tape: Tape, seed: int) -> Repeatable | None:
    """Return the problem made repeatable, by seeding before every call if needed, None if that does not help.

    A forward that uses random numbers is seeded even if it happened to give the same outputs twice. Raises
    EvaluationError if user code raises.
    """
    seed_everywhere(seed)
    found = Repeatable(problem=problem, tape=tape, sampled=sampler(problem, tape))
    repeated = _repeats(found.sampled)
    if problem.seed is None and (not repeated or not generators_unused(seed)):
        seeded = replace(problem, seed=forward_seed(seed))
        tape = record(seeded)
        found = Repeatable(problem=seeded, tape=tape, sampled=sampler(seeded, tape))
        repeated = _repeats(found.sampled)
    return found if repeated else None


def as_rounded(steady: Repeatable, sampled: Sampler) -> Repeatable | None:
    """Return the problem with inputs in the dtypes to which `sampled`, its forward, rounds them.

    None if it rounds none of them. For backward, inputs of a coarser dtype keep that dtype.
    """
    if not len(sampled.point):  # an input without entries
        return None
    rounded = {block.tensor: _rounded_to(sampled, block) for block in _insensitive_inputs(sampled)}
    dtypes = [rounded.get(number) for number in range(len(sampled.problem.primals))]
    if all(dtype is None for dtype in dtypes):
        return None
    try:
        return _with_dtypes(steady, sampled, dtypes)
    except EvaluationError:
        return None


def in_double(steady: Repeatable) -> Repeatable:
    """Return the problem with its forward sampled in float64, or unchanged if that is not possible."""
    dtypes = frozenset(primal.tensor.dtype for primal in steady.problem.primals)
    if not dtypes or not dtypes <= set(NARROW):
        return steady
    functions = [each for each in (steady.problem.function, steady.problem.finer) if each is not None]
    for wide in chain.from_iterable(_in_float64(replace(steady.problem, function=each)) for each in functions):
        if _agree(wide, steady.sampled, steady.problem.eps) and _repeats(wide) and _draw_alike(wide, steady.sampled):
            computed_eps = _eps_computed_in(steady.problem) if wide.problem.is_widened else 0.0
            return replace(steady, sampled=replace(wide, dtypes=dtypes, is_finer=True, computed_eps=computed_eps))
    return steady


def _eps_computed_in(problem: Problem) -> float:
    """Return the eps of the coarsest dtype that forward and backward compute in; 0 if one of them raises."""

    def both() -> None:
        tape = record(problem)
        with torch.no_grad():
            vjp(problem, tape, [torch.ones_like(output.tensor) for output in tape.outputs])

    try:
        return eps_computed_in(both)
    except EvaluationError:
        return 0.0


def _repeats(sampled: Sampler) -> bool:
    """Return True if a second forward at the same point gives the same outputs, up to rounding.

    A sum may be taken in another order in each call, as by atomic additions. Then all calls count as inexact.
    """
    if not sampled.with_graph:
        return True  # a second call has already given the outputs of the recorded one
    again = outputs_near(sampled, torch.zeros_like(sampled.point))
    if identical(again, sampled.value):
        return True
    apart = ((again - sampled.value).abs() / sampled.size).masked_fill(equal_or_nan(again, sampled.value), 0.0)
    sampled.vectorisation.differences["another call"] = float((apart / sampled.unit).max())
    allowed = (2 * _MAX_DIFFERENCE * sampled.unit).clamp(max=LARGEST_CANCELLATION)  # an eps is two units
    return all_set(apart <= allowed)


def _insensitive_inputs(sampled: Sampler) -> Iterator[Block]:
    """Yield the inputs, near the point, that may move by half a gap of float32 without any effect on the outputs.

    They move from numbers that each of `NARROW` holds exactly, and so would be rounded back to them. Costs a forward
    per input, and one.
    """
    start = sampled.point
    for dtype in NARROW:
        start = start.to(dtype)
    start = start.to(torch.float64)
    moved = start + _BACK * _gap_to_next(start, torch.float32)
    outputs = outputs_at(sampled, start.clone())
    for block in sampled.inputs:
        point = start.clone()
        point[block.coordinates] = moved[block.coordinates]
        if identical(outputs_at(sampled, point), outputs):
            yield block


def _rounded_to(sampled: Sampler, block: Block) -> torch.dtype | None:
    """Return the coarsest dtype to which the forward rounds this input, None if it does not round it."""
    own = sampled.problem.primals[block.tensor].tensor.dtype
    if not own.is_floating_point:
        return None
    return next((dtype for dtype in NARROW if _eps(dtype) > _eps(own) and _rounds(sampled, block, dtype)), None)


def _rounds(sampled: Sampler, block: Block, dtype: torch.dtype) -> bool:
    """Return True if the forward rounds this input to `dtype`, at three points around the given one."""
    generator = torch.Generator().manual_seed(0)
    shared, point = scales(sampled.point, sampled.inputs).shared[block.coordinates], sampled.point[block.coordinates]
    trials = max(FEW, EXAMINED // max(1, len(sampled.value)))  # so many that some outputs change
    trials = max(1, min(trials, HELD // (len(sampled.point) + len(sampled.value))))
    changes = 0
    for displacement in (torch.zeros_like(shared), shared, shared.clamp(min=1.0)):
        original = point + random_magnitudes(displacement, generator)
        rounded = original.to(dtype).to(torch.float64)
        outputs, outputs_rounded = _at_values(sampled, block, torch.stack([original, rounded]))
        if not identical(outputs_rounded, outputs):
            return False
        perturbed = torch.randint(2, (trials, len(rounded)), generator=generator).bool().to(rounded.device)
        gap = torch.where(perturbed, _gap_to_next(rounded, dtype), 0.0)
        below, above, at_next = (
            _at_values(sampled, block, rounded + share * gap) for share in (_BACK, 1.0 - _BACK, 1.0)
        )
        if not (identical(below, outputs.expand_as(below)) and identical(above, at_next)):
            return False
        changes += int(((at_next != outputs) & at_next.isfinite()).sum())
    return changes >= CONVINCING


def _gap_to_next(number: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the signed gap from each number of this dtype to the next one away from zero, 0 from zero itself."""
    _, exponent = torch.frexp(number)
    limits = torch.finfo(dtype)
    gap = torch.ldexp(torch.full_like(number, limits.eps / 2), exponent).clamp(min=limits.smallest_normal * limits.eps)
    return torch.where(number == 0, 0.0, gap.copysign(number))


def _at_values(sampled: Sampler, block: Block, values: Tensor) -> Tensor:
    """Return the outputs with one input set to `values` (N, k); (N, m)."""
    points = sampled.point.repeat(len(values), 1)
    points[:, block.coordinates] = values
    found = sampled.value.new_empty(len(values), len(sampled.value))
    evaluate(sampled, points, found)
    return found


def _with_dtypes(steady: Repeatable, sampled: Sampler, dtypes: Sequence[torch.dtype | None]) -> Repeatable:
    """Return the problem with inputs in these dtypes, where not None; raises EvaluationError."""
    backward_inputs = [
        primal.tensor if dtype is None or _eps(dtype) <= _eps(primal.tensor.dtype) else primal.tensor.to(dtype)
        for primal, dtype in zip(steady.problem.primals, dtypes, strict=True)
    ]
    forward_inputs = [
        tensor.to(primal.tensor.dtype if dtype is None else dtype)
        for tensor, primal, dtype in zip(backward_inputs, sampled.problem.primals, dtypes, strict=True)
    ]
    backward, forward = _with_primals(steady.problem, backward_inputs), _with_primals(sampled.problem, forward_inputs)
    found = sampler(forward, record(forward))
    coarsest = max((dtype for dtype in dtypes if dtype is not None), key=_eps)
    found = replace(
        found,
        unit=_unit(found, coarsest),
        dtypes=frozenset(tensor.dtype for tensor in backward_inputs),
        is_finer=backward.eps > forward.eps,
        rounds_to=coarsest,
    )
    return Repeatable(problem=backward, tape=record(backward), sampled=found)


def _with_primals(problem: Problem, tensors: Sequence[Tensor]) -> Problem:
    """Return the problem with primals of other dtypes, cast to their original dtypes before the function."""
    originals, function = problem.primals, problem.function

    def called(*given: Tensor) -> Any:
        return function(*(_as_original(primal, tensor) for primal, tensor in zip(originals, given, strict=True)))

    primals = [replace(primal, tensor=tensor, project=None) for primal, tensor in zip(originals, tensors, strict=True)]
    return replace(problem, function=called, finer=None, primals=tuple(primals))


def _as_original(primal: Primal, tensor: Tensor) -> Tensor:
    """Return an input for the function: cast to the primal's dtype, then projected."""
    cast = tensor.to(primal.tensor.dtype)
    return cast if primal.project is None else primal.project(cast)


def _unit(sampled: Sampler, dtype: torch.dtype) -> Tensor:
    """Return the unit roundoff of the coarsest dtype, up to `dtype`, that represents all of an output tensor; (m,)."""
    unit = sampled.unit.clone()
    for block in sampled.outputs:
        values = sampled.value[block.coordinates]
        exact = [each for each in NARROW if _eps(each) <= _eps(dtype) and identical(values.to(each).double(), values)]
        if exact:
            unit[block.coordinates] = torch.maximum(unit[block.coordinates], unit.new_tensor(_eps(exact[0]) / 2))
    return unit


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


def _in_float64(problem: Problem) -> Iterator[Sampler]:
    """Yield samplers of the forward with inputs and outputs in float64; none if it raises or has other outputs.

    If the forward casts to a narrower dtype on its way, the first one leaves these casts out, in backward too.
    """
    wide = replace(problem, primals=tuple(replace(primal, tensor=primal.tensor.double()) for primal in problem.primals))
    for with_casts in (False, True):
        watched = WithoutNarrowing()
        with suppress(EvaluationError):
            with nullcontext() if with_casts else watched:
                tape = record(wide)
            if all(output.tensor.dtype is torch.float64 for output in tape.outputs):
                yield sampler(replace(wide, is_widened=watched.has_narrowed), tape)
        if not watched.has_narrowed:
            return


def _draw_alike(wide: Sampler, narrow: Sampler) -> bool:
    """Return True if two forwards draw the same random numbers, up to rounding; the same seed may give others.

    False if that cannot be told: some operations cannot be watched.
    """
    if narrow.problem.seed is None:
        return True
    try:
        draws, others = map(_draws_of, (wide.problem, narrow.problem))
    except EvaluationError:
        return False
    allowed = _MAX_DIFFERENCE * narrow.problem.eps  # of the largest number, since a fused dropout returns products
    return [each.shape for each in draws] == [each.shape for each in others] and all(
        all_set(((one - other).abs() <= allowed * finite_size(other).max()) | equal_or_nan(one, other))
        for one, other in zip(draws, others, strict=True)
        if other.numel()
    )


def _draws_of(problem: Problem) -> list[Tensor]:
    draws: list[Tensor] = []
    with DrawTrace(draws):
        record(problem)
    return draws


def _agree(wide: Sampler, narrow: Sampler, eps: float) -> bool:
    """Return True if two forwards have equal outputs up to rounding, of intermediate values or of the inputs."""
    if (wide.names, wide.shapes) != (narrow.names, narrow.shapes):
        return False
    difference = (wide.value - narrow.value).abs()
    is_close = (difference <= _MAX_DIFFERENCE * eps * wide.size) | equal_or_nan(wide.value, narrow.value)
    if all_set(is_close):
        return True
    of_inputs = largest_change(wide, INPUT_EPS * eps * scales(wide.point, wide.inputs).nonzero)
    if all_set(is_close | (difference <= of_inputs)):
        return True
    on_the_way = rounding_on_the_way(wide) / (2 * wide.unit) * eps
    return all_set(is_close | (difference <= of_inputs + SUM_UNITS * on_the_way))
