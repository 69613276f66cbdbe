"""Outputs and gradients of a function and of its reference, judged tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.checks.reference.error_model import JudgedTensor, Precision, judge_tensor
from gradverify.checks.reference.evaluate import Evaluated, EvaluatedReference
from gradverify.checks.reference.finiteness import Sample
from gradverify.checks.reference.jumps import sample_of
from gradverify.checks.reference.magnitudes import largest_of
from gradverify.core.model.coordinates import coordinates_in
from gradverify.core.model.problem import Problem
from gradverify.nested import Named


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One output, or the gradient by one input, in all its entries; where several cotangents differ, the worst one."""

    named: Named
    value: Tensor  # (n,) by the function, as real coordinates
    exact: Tensor  # (n,) by the reference
    error: Tensor  # (n,)
    allowed: Tensor  # (n,)
    ulps: Tensor  # (n,) error in units in the last place of `exact`
    wrong: Tensor  # (n,) bool
    not_finite: Tensor  # (n,) bool, True where one of value and reference is finite and the other not
    unjudged: Tensor  # (n,) bool, True where the reference cannot judge: it is NaN, or not finite close by
    lost: bool  # True if rounding explains errors as large as the tensor, for every cotangent
    cotangent: Tensor  # (n,) number of the cotangent that each entry is shown for
    factors: tuple[float, ...]  # common factor of the errors, for each cotangent
    by_factor: bool  # True if nothing is wrong but the common factor
    entry_limit: float  # relative error of an entry of median size that would be found; inf if unknown
    factor_limit: float  # common factor that would be found
    missing: bool = False  # True if backward returns no gradient


def compared_outputs(
    outputs: Sequence[Named], inputs: Sequence[Tensor], own: Evaluated, theirs: EvaluatedReference, precision: Precision
) -> tuple[Compared, ...]:
    """Return the comparison of every output."""
    tensors = [output.tensor for output in outputs]
    others = (theirs.exact, theirs.jittered, *theirs.noisy, *theirs.nudged)
    samples = _samples(tensors, len(theirs.noisy), own.outputs, *(each.outputs for each in others))
    longest = _longest((*tensors, *inputs))
    return tuple(
        _compared(output, sample, judge_tensor(sample, precision, longest(sample.like)))
        for output, sample in zip(outputs, samples, strict=True)
    )


def compared_gradients(
    problem: Problem, outputs: Sequence[Tensor], own: Evaluated, theirs: EvaluatedReference, precision: Precision
) -> tuple[Compared, ...]:
    """Return the comparison of the gradient by every primal, over all cotangents."""
    tensors = [primal.tensor for primal in problem.primals]
    longest = _longest((*tensors, *outputs))
    others = (theirs.exact, theirs.jittered, *theirs.noisy, *theirs.nudged)
    per_primal: list[list[Compared]] = [[] for _ in tensors]
    for number, value in enumerate(own.gradients):
        samples = _samples(tensors, len(theirs.noisy), value, *(each.gradients[number] for each in others))
        for place, sample in enumerate(samples):
            named = Named(name=problem.primals[place].name, tensor=sample.like)
            found = judge_tensor(sample, precision, longest(sample.like))
            per_primal[place].append(_compared(named, sample, found, number, missing=own.missing[place]))
    return tuple(reduce(_worse, found) for found in per_primal)


def _samples(
    tensors: Sequence[Tensor], noisy: int, value: Tensor, exact: Tensor, jittered: Tensor, *changed: Tensor
) -> Iterator[Sample]:
    """Yield the parts of vectors over all tensors that belong to each; the first `noisy` of `changed` are by noise."""
    sizes = [coordinates_in(tensor) for tensor in tensors]
    parts = [torch.split(vector, sizes) for vector in (value, exact, jittered, *changed)]
    size = max(1.0, largest_of(exact.nan_to_num(0.0, 0.0, 0.0)))  # cotangents are about 1
    for tensor, own, right, jitter, *others in zip(tensors, *parts, strict=True):
        yield sample_of(own, right, others[:noisy], jitter, others[noisy:], tensor, size)


def _compared(
    named: Named, sample: Sample, found: JudgedTensor, cotangent: int = 0, *, missing: bool = False
) -> Compared:
    return Compared(
        named=named,
        value=sample.value,
        exact=sample.exact,
        error=found.error,
        allowed=found.allowed,
        ulps=found.ulps,
        wrong=found.wrong,
        not_finite=found.not_finite,
        unjudged=found.unjudged,
        lost=found.lost,
        cotangent=torch.full_like(found.wrong, cotangent, dtype=torch.int8),
        factors=(found.factor,),
        by_factor=found.by_factor,
        entry_limit=found.entry_limit,
        factor_limit=found.factor_limit,
        missing=missing,
    )


def within_tolerances(found: Compared, tolerances: Tolerances) -> Compared:
    """Return the comparison with errors accepted that the case's own tolerances accept."""
    if not tolerances.atol and not tolerances.rtol:
        return found
    tolerated = (tolerances.atol or 0.0) + (tolerances.rtol or 0.0) * found.exact.abs().nan_to_num(0.0, 0.0)
    near = (found.value - found.exact).abs() <= tolerated
    return replace(found, wrong=found.wrong & (found.error > tolerated), unjudged=found.unjudged & ~near)


def _worse(one: Compared, other: Compared) -> Compared:
    """Return both comparisons as one, each entry as in the one where its error is larger beside what is allowed."""
    worse = _badness(other) > _badness(one)

    def pick(ours: Tensor, theirs: Tensor) -> Tensor:
        return torch.where(worse, ours, theirs)

    wrong = [each.by_factor for each in (one, other) if bool(each.wrong.any())]
    return Compared(
        named=one.named,
        value=pick(other.value, one.value),
        exact=pick(other.exact, one.exact),
        error=pick(other.error, one.error),
        allowed=pick(other.allowed, one.allowed),
        ulps=pick(other.ulps, one.ulps),
        wrong=one.wrong | other.wrong,
        not_finite=one.not_finite | other.not_finite,
        unjudged=one.unjudged | other.unjudged,
        lost=one.lost and other.lost,
        cotangent=pick(other.cotangent, one.cotangent),
        factors=(*one.factors, *other.factors),
        by_factor=bool(wrong) and all(wrong),
        entry_limit=min(one.entry_limit, other.entry_limit),
        factor_limit=min(one.factor_limit, other.factor_limit),
        missing=one.missing,
    )


def _badness(found: Compared) -> Tensor:
    """Return error / allowed (n,), with wrong entries, and then unjudged ones, before all others."""
    ratio = (found.error / found.allowed).nan_to_num(math.inf)
    others = torch.where(found.unjudged, 0.5, ratio.clamp(max=1.0) - 1.0)
    return torch.where(found.wrong, ratio.clamp(min=1.0), others)


def _longest(tensors: Sequence[Tensor]) -> Callable[[Tensor], int]:
    """Return a bound on the number of terms that an entry of a tensor may be summed from."""
    dimension = max((size for tensor in tensors for size in tensor.shape), default=1)
    entries = max((tensor.numel() for tensor in tensors), default=1)
    return lambda tensor: max(dimension, entries // max(1, tensor.numel()))
