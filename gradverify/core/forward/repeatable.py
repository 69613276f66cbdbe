"""Forwards that can be differenced: repeatable, and in float64 throughout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from gradverify.arithmetic.narrowing import Narrowing
from gradverify.arithmetic.unrounded import WIDE
from gradverify.core.forward.noise import largest_change
from gradverify.core.forward.sampler import Sampler, outputs_near, sampler
from gradverify.core.forward.step_noise import rounding_on_the_way
from gradverify.core.model.coordinates import flatten
from gradverify.core.model.generators import generators_unused, own_seed, seed_everywhere
from gradverify.core.model.magnitudes import all_set, any_set, equal_or_nan, finite_size, identical, scales
from gradverify.core.model.problem import NARROW, Problem
from gradverify.core.model.tape import Tape, random_cotangents, record, vjp
from gradverify.core.tuning import INPUT_EPS, LARGEST_CANCELLATION, SUM_UNITS
from gradverify.errors import EvaluationError
from gradverify.interception import DrawTrace

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
        seeded = replace(problem, seed=own_seed(seed))
        tape = record(seeded)
        found = Repeatable(problem=seeded, tape=tape, sampled=sampler(seeded, tape))
        repeated = _repeats(found.sampled)
    return found if repeated else None


def in_double(repeatable: Repeatable) -> Repeatable:
    """Return the problem with its forward sampled in float64 throughout, or unchanged if that is not possible.

    Casts to lower precision on the way are left out, if the outputs are the same without them up to rounding.
    """
    own, dtypes = repeatable.sampled, frozenset(primal.tensor.dtype for primal in repeatable.problem.primals)
    if not dtypes or not (dtypes <= {*NARROW} or (dtypes <= WIDE and own.narrowing_eps)):
        return repeatable
    functions = [each for each in (repeatable.problem.function, repeatable.problem.finer) if each is not None]
    coarsest = max(repeatable.problem.eps, own.narrowing_eps)  # what forward is, or is cast to
    for wide in chain.from_iterable(_in_float64(replace(repeatable.problem, function=each)) for each in functions):
        if not (_agree(wide, own, coarsest) and _repeats(wide) and _draw_alike(wide, own)):
            continue
        rounds = _casts_round_gradient(repeatable, wide.problem)
        if rounds is not None or dtypes <= {*NARROW}:
            computed_eps = 0.0 if rounds is False else coarsest
            sampled = replace(
                wide,
                dtypes=dtypes,
                is_finer=dtypes <= {*NARROW} or computed_eps > 0,
                computed_eps=computed_eps,
                only_casts_round=rounds is True and computed_eps > repeatable.problem.eps,
            )
            return replace(repeatable, sampled=sampled)
    return repeatable


def _casts_round_gradient(repeatable: Repeatable, wide: Problem) -> bool | None:
    """Return True if casts that are left out round the gradient, False if there are none or it is the same.

    None if it cannot be told: backward without its casts raises, or rounds even so (it stores numbers in a narrower
    dtype, or its result is the same and has no more digits than float32), or forward only casts in its own precision,
    as under autocast.
    """
    if not wide.is_widened:
        return None if repeatable.sampled.narrowing_eps > repeatable.problem.eps else False
    casts = Narrowing(leave_out=True)
    try:
        with casts:
            exact = _random_vjp(wide, record(wide))
        with_casts = replace(wide, is_widened=False)
        own = _random_vjp(with_casts, record(with_casts))
    except EvaluationError:
        return None
    is_same = identical(own, exact)
    rounds_even_so = casts.rounds or (is_same and any_set(own != 0) and identical(own.float().double(), own))
    return None if rounds_even_so else not is_same


def _random_vjp(problem: Problem, tape: Tape) -> Tensor:
    """Return the vjp of a random cotangent; (n,)."""
    with torch.no_grad():
        found = vjp(problem, tape, [cotangent.tensor for cotangent in random_cotangents(tape, 0)])
    pairs = zip(found, problem.primals, strict=True)
    return flatten(torch.zeros_like(primal.tensor) if grad is None else grad for grad, primal in pairs)


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


def _in_float64(problem: Problem) -> Iterator[Sampler]:
    """Yield samplers of the forward with inputs and outputs in float64; none if it raises or has other outputs.

    If forward or backward casts to a narrower dtype on its way, the first one leaves these casts out.
    """
    primals = problem.primals
    if not {primal.tensor.dtype for primal in primals} <= WIDE:
        primals = tuple(replace(primal, tensor=primal.tensor.double()) for primal in primals)
    wide = replace(problem, primals=primals)
    for leave_out in (True, False):
        casts = Narrowing(leave_out=leave_out)
        with suppress(EvaluationError):
            with casts:
                tape = record(wide)
                with suppress(EvaluationError):
                    _random_vjp(wide, tape)
            if all(output.tensor.dtype in WIDE for output in tape.outputs):
                yield sampler(replace(wide, is_widened=leave_out and casts.eps > 0), tape)
        if not casts.eps:
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
