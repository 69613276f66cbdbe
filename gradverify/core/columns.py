"""Columns of the Jacobian judged: the cheap pass for all, the thorough one for those in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core import richardson
from gradverify.core.compare import (
    Allowance,
    Code,
    Judged,
    in_doubt,
    judge_local,
    judge_smooth,
    relative_tolerance,
    resolution_scale,
    rounding_allowance,
)
from gradverify.core.ladder import coarse_steps, fine_steps
from gradverify.core.noise import Noise
from gradverify.core.nonsmooth import examine, suspicious
from gradverify.core.sampler import Sampler, magnitudes
from gradverify.core.samples import Samples, joined, of_rows, sample
from gradverify.core.scale import Scales

_CHUNK = 2_000_000  # sampled numbers held at a time
_DEPTH = 32  # rungs of a ladder, about
_FIELDS = tuple(field.name for field in fields(Judged))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is needed to judge columns: the sampled forward, its noise and scales, and the claimed Jacobian."""

    sampled: Sampler
    noise: Noise
    lengths: Scales
    claimed: Tensor  # (n, m): A transposed, so that a coordinate moved is a row
    allowance: Allowance


def bench(sampled: Sampler, noise: Noise, lengths: Scales, claimed: Tensor, settings: Settings) -> Bench:
    """Put together what every column is judged with; `claimed` is (m, n)."""
    turned = claimed.T.contiguous()
    dtypes = {primal.tensor.dtype for primal in sampled.problem.primals}
    absolute = settings.tolerances.atol or 0.0
    allowance = Allowance(
        rtol=relative_tolerance(settings.tolerances, dtypes),
        atol=rounding_allowance(turned) + absolute,
        scale=resolution_scale(turned, magnitudes(sampled, sampled.value), lengths.step),
        largest=magnitudes(sampled, turned.abs().amax(dim=0)) if len(turned) else sampled.value,
    )
    return Bench(sampled=sampled, noise=noise, lengths=lengths, claimed=turned, allowance=allowance)


def judge_columns(at: Bench, columns: Tensor) -> Judged:
    """Judge all entries of the columns (C,): the cheap pass for all, the thorough one for those in doubt."""
    samples = sample(at.sampled, columns, richardson.steps(at.lengths.step[columns]))
    claimed, allowance = at.claimed[columns], _of_columns(at.allowance, columns)
    judged = judge_smooth(claimed, richardson.extrapolate(at.sampled, at.noise, samples), allowance)
    doubt = in_doubt(judged, suspicious(at.sampled, at.noise, samples), claimed.abs())
    if not bool(doubt.any()):
        return judged
    return _replaced(judged, doubt, thorough(at, columns[doubt]))


def thorough(at: Bench, columns: Tensor) -> Judged:
    """Judge all entries of the columns by a ladder of steps, a few columns at a time."""
    found = [_climb(at, chosen) for chosen in _chunks(columns, 2 * _DEPTH * at.sampled.value.numel())]
    return Judged(**{name: torch.cat([getattr(part, name) for part in found]) for name in _FIELDS})


def _climb(at: Bench, columns: Tensor) -> Judged:
    """Judge the columns by the coarse part of the ladder, and those that it leaves open by the fine part too."""
    own, shared = at.lengths.own[columns], at.lengths.shared[columns]
    samples = sample(at.sampled, columns, coarse_steps(own, shared))
    judged = _judged(at, samples)
    still = (judged.code != Code.MATCH).any(dim=1)
    if not bool(still.any()):
        return judged
    finer = sample(at.sampled, columns[still], fine_steps(own[still], shared[still]))
    return _replaced(judged, still, _judged(at, joined(of_rows(samples, still), finer)))


def _judged(at: Bench, samples: Samples) -> Judged:
    local = examine(at.sampled, at.noise, samples)
    return judge_local(at.claimed[samples.columns], local, _of_columns(at.allowance, samples.columns))


def judge_all(at: Bench) -> Iterator[tuple[Tensor, Judged]]:
    """Yield columns and the verdicts on their entries, a few columns at a time, until all are judged."""
    columns = torch.arange(at.sampled.point.numel(), device=at.sampled.point.device)
    for chosen in _chunks(columns, richardson.DEPTH * at.sampled.value.numel()):
        yield chosen, judge_columns(at, chosen)


def map_judged(judged: Judged, change: Callable[[Tensor], Tensor]) -> Judged:
    """Return the verdicts with `change` applied to every one of their tensors."""
    return Judged(**{name: change(getattr(judged, name)) for name in _FIELDS})


def _of_columns(allowance: Allowance, columns: Tensor) -> Allowance:
    return Allowance(
        rtol=allowance.rtol,
        atol=allowance.atol[columns],
        scale=allowance.scale[columns],
        largest=allowance.largest,
    )


def _replaced(judged: Judged, where: Tensor, found: Judged) -> Judged:
    values = {name: getattr(judged, name).clone() for name in _FIELDS}
    for name, value in values.items():
        value[where] = getattr(found, name)
    return Judged(**values)


def _chunks(columns: Tensor, numbers_per_column: int) -> Iterator[Tensor]:
    size = max(1, _CHUNK // max(1, numbers_per_column))
    yield from torch.split(columns, size) if len(columns) else ()
