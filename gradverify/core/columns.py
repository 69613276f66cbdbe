"""Columns of the Jacobian judged: the cheap pass for all, the thorough one for those in doubt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core import richardson, sampler
from gradverify.core.compare import (
    ROUNDING,
    ZERO,
    Allowance,
    Code,
    Judged,
    entry_scale,
    in_doubt,
    is_resolved,
    judge_local,
    judge_smooth,
    relative_tolerance,
    resolution_scale,
)
from gradverify.core.ladder import coarse_steps, fine_steps, halving_steps
from gradverify.core.moves import Moves, members, owned
from gradverify.core.noise import Noise
from gradverify.core.nonsmooth import examine
from gradverify.core.sampler import Sampler, magnitudes
from gradverify.core.samples import Samples, Steps, joined, of_outputs, of_rows, sample, unmoved
from gradverify.core.scale import Scales
from gradverify.core.shape import suspicious

_CHUNK = 2_000_000  # sampled numbers held at a time
_CACHED = 1 << 15  # entries that are judged at a time
_MANY = 20_000  # entries in doubt that are all looked at again
_CLEARLY = 30.0  # beyond those, not the ones that are wrong by this many times what is allowed
_UNITS, _UNITS_OF_BACKWARD = 128.0, 16384.0  # of rounding, which what cancels inside may leave in a derivative
_DEPTH = 32  # rungs of a ladder, about
_FIELDS = tuple(field.name for field in fields(Judged))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is needed to judge columns: the sampled forward, its noise and scales, and the claimed Jacobian."""

    sampled: Sampler
    noise: Noise
    lengths: Scales
    moves: Moves
    claimed: Tensor  # (M, m): what backward claims of each output and the coordinate that owns it in each move
    allowance: Allowance


def bench(sampled: Sampler, noise: Noise, lengths: Scales, moves: Moves, claimed: Tensor, settings: Settings) -> Bench:
    """Put together what every move is judged with; `claimed` is (M, m)."""
    dtypes = {primal.tensor.dtype for primal in sampled.problem.primals}
    beside = entry_scale(moves, claimed)
    allowance = Allowance(
        rtol=relative_tolerance(settings.tolerances, dtypes),
        atol=ROUNDING * beside + (settings.tolerances.atol or 0.0),
        zero=ZERO * beside,
        scale=resolution_scale(moves, claimed, sampled.size, lengths.step),
        largest=magnitudes(sampled, claimed.abs().amax(dim=0)) if len(claimed) else sampled.value,
        faint=_faint(sampled, moves, claimed),
        order=sampled.problem.order,
    )
    return Bench(sampled=sampled, noise=noise, lengths=lengths, moves=moves, claimed=claimed, allowance=allowance)


def _faint(sampled: Sampler, moves: Moves, claimed: Tensor) -> Tensor:
    """Return per entry what rounding of quantities of the output's or the input tensor's size may amount to; (M, m)."""
    if not claimed.numel():
        return claimed
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.ones_like(inputs)  # of each coordinate's own tensor
    for block in sampled.inputs:
        own = inputs[block.coordinates]
        largest[block.coordinates] = own.max() if bool((own > 0).any()) else 1.0
    units = _UNITS_OF_BACKWARD if sampled.problem.order > 1 else _UNITS
    scale = owned(moves, torch.arange(moves.count, device=claimed.device), largest)
    share = sampled.size.unsqueeze(0) / scale
    # An output far below the rounding of the rounding of the inputs is nothing that is left of them.
    tiny = (share > 0) & (share < sampled.unit.square())
    return units * sampled.unit * torch.where(tiny, share, share.clamp(min=1.0))


def judge_moves(at: Bench, chosen: Tensor) -> Judged:
    """Judge all entries of the moves (C,): the cheap pass for all, the thorough one for those in doubt."""
    samples = sample(at.sampled, at.moves, chosen, richardson.steps(at.lengths.step))
    slices = [*_slices(at.sampled.value.numel(), len(chosen))]
    parts = [_cheap(focused(at, part), of_outputs(samples, part)) for part in slices]
    judged = _beside([part.judged for part in parts])
    bends = torch.cat([part.bends for part in parts], dim=1)
    doubt = _bounded(torch.cat([part.doubt for part in parts], dim=1), judged, bends)
    del samples, parts
    for part in _chunks(doubt.any(dim=0).nonzero().squeeze(1), 2 * _DEPTH * len(chosen)):
        rows = doubt[:, part].any(dim=1).nonzero().squeeze(1)
        found = thorough(focused(at, part), chosen[rows])
        judged = _replaced(judged, doubt, rows, part, found)
    return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """What the cheap pass says, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the function bends as no smooth one does
    doubt: Tensor  # bool: deserves the thorough pass


def _cheap(at: Bench, samples: Samples) -> _First:
    claimed, allowance = at.claimed[samples.moves], of_moves(at.allowance, samples.moves)
    judged = judge_smooth(claimed, richardson.extrapolate(at.sampled, at.noise, samples), allowance)
    # An output that never moved says most at the largest steps, where backward claims that it does.
    idle = unmoved(at.sampled, samples).all(dim=1) & (claimed.abs() > allowance.zero)
    bends = suspicious(at.sampled, at.noise, samples)
    return _First(judged=judged, bends=bends, doubt=in_doubt(judged, bends | idle, claimed.abs(), allowance))


def _slices(outputs: int, moves: int) -> Iterator[slice]:
    """Yield the outputs, as many at a time as stay in a cache."""
    size = max(1, _CACHED // max(1, moves))
    for start in range(0, max(1, outputs), size):
        yield slice(start, min(outputs, start + size))


def _beside(parts: Sequence[Judged]) -> Judged:
    if len(parts) == 1:
        return parts[0]
    return Judged(**{name: torch.cat([getattr(part, name) for part in parts], dim=1) for name in _FIELDS})


def thorough(at: Bench, chosen: Tensor) -> Judged:
    """Judge all entries of the moves by a ladder of steps, a few moves at a time."""
    found = [_climb(at, part) for part in _chunks(chosen, 2 * _DEPTH * _width(at))]
    return Judged(**{name: torch.cat([getattr(part, name) for part in found]) for name in _FIELDS})


def focused(at: Bench, outputs: Tensor | slice) -> Bench:
    """Return the bench with some of the outputs only, given by their numbers."""
    if isinstance(outputs, slice) and outputs == slice(0, at.sampled.value.numel()):
        return at
    moves = replace(at.moves, owner=at.moves.owner[:, outputs], direct=False)
    allowance = Allowance(
        rtol=at.allowance.rtol,
        atol=at.allowance.atol[:, outputs],
        zero=at.allowance.zero[:, outputs],
        scale=at.allowance.scale[:, outputs],
        largest=at.allowance.largest[outputs],
        faint=at.allowance.faint[:, outputs],
        order=at.allowance.order,
    )
    sampled, claimed = sampler.focused(at.sampled, outputs), at.claimed[:, outputs]
    return replace(at, sampled=sampled, noise=at.noise.of(outputs), moves=moves, claimed=claimed, allowance=allowance)


def judge_all(at: Bench) -> Iterator[tuple[Tensor, Judged]]:
    """Yield moves and the verdicts on their entries, a few moves at a time, until all are judged."""
    every = torch.arange(at.moves.count, device=at.sampled.point.device)
    for chosen in _chunks(every, richardson.DEPTH * _width(at)):
        yield chosen, judge_moves(at, chosen)


def of_moves(allowance: Allowance, chosen: Tensor) -> Allowance:
    """Return the allowance of some of the moves, which are in order."""
    if len(chosen) == len(allowance.atol):
        return allowance
    return Allowance(
        rtol=allowance.rtol,
        atol=allowance.atol[chosen],
        zero=allowance.zero[chosen],
        scale=allowance.scale[chosen],
        largest=allowance.largest,
        faint=allowance.faint[chosen],
        order=allowance.order,
    )


def _bounded(doubt: Tensor, judged: Judged, bends: Tensor) -> Tensor:
    """Leave entries that are wrong beyond any doubt at that, where there are too many to look at each again."""
    flat = doubt.reshape(-1).nonzero().squeeze(1)
    if len(flat) <= _MANY:
        return doubt
    clear = (judged.code == Code.MISMATCH) & (judged.error > _CLEARLY * judged.allowed) & ~bends
    first = torch.zeros_like(doubt)
    first.reshape(-1)[flat[:_MANY]] = True
    return doubt & (first | ~clear)


def _climb(at: Bench, chosen: Tensor) -> Judged:
    """Judge the moves by the first part of the ladder, and those that it leaves open by the next parts too."""
    samples = sample(at.sampled, at.moves, chosen, halving_steps(at.lengths))
    judged, height = _judged(at, samples, None)
    every = torch.arange(at.sampled.value.numel(), device=chosen.device)
    rows = torch.arange(len(chosen), device=chosen.device)
    for part in (_coarse, _fine):
        still = (~_settled(at, chosen, judged)[rows]).any(dim=1)
        if not bool(still.any()):
            break
        rows = rows[still]
        samples = joined(of_rows(samples, still), sample(at.sampled, at.moves, chosen[rows], part(at, chosen[rows])))
        again, height = _judged(at, samples, height[still])
        judged = _replaced(judged, torch.ones_like(judged.kinked), rows, every, again)
    return judged


def _settled(at: Bench, chosen: Tensor, judged: Judged) -> Tensor:
    """Tell which entries agree beyond doubt, (C, m).

    Not those that agree for want of precision alone, beside the steep slopes that the largest steps have seen.
    """
    allowance, claimed = of_moves(at.allowance, chosen), at.claimed[chosen]
    doubt = in_doubt(judged, torch.zeros_like(judged.kinked), claimed.abs(), allowance)
    return ~doubt & is_resolved(judged.bar, claimed.abs(), allowance)


def _coarse(at: Bench, chosen: Tensor) -> Steps:
    del chosen
    return coarse_steps(at.lengths)


def _fine(at: Bench, chosen: Tensor) -> Steps:
    return fine_steps(at.lengths, members(at.moves, chosen)[0])


def _judged(at: Bench, samples: Samples, height: Tensor | None) -> tuple[Judged, Tensor]:
    """Return the verdicts, and the heights of the stairs that the samples show.

    Where it is open whether there is noise or a kink far off, what agrees with either is not accused.
    """
    claimed, allowance = at.claimed[samples.moves], of_moves(at.allowance, samples.moves)
    local = examine(at.sampled, at.noise, samples, height)
    judged = judge_local(claimed, local, allowance)
    open_ = (at.noise.loud > at.noise.level) & local.unsteady & (judged.code == Code.MISMATCH)
    if bool(open_.any()):
        loud = replace(at.noise, level=at.noise.loud)
        other = judge_local(claimed, examine(at.sampled, loud, samples, height), allowance)
        every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
        code = other.code.masked_fill((other.code == Code.MATCH) & ~at.noise.lasting, Code.UNDETERMINED)
        judged = _replaced(judged, open_, *every, replace(other, code=code))
    return judged, local.height


def _replaced(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those at `rows` and `outputs`, as far as they are in `where`, put in their place."""
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    mine = where[place]
    values = {name: getattr(judged, name).clone() for name in _FIELDS}
    for name, value in values.items():
        value[place] = torch.where(mine, getattr(found, name), value[place])
    return Judged(**values)


def _width(at: Bench) -> int:
    return at.sampled.value.numel() + at.sampled.point.numel()


def _chunks(chosen: Tensor, numbers_per_move: int) -> Iterator[Tensor]:
    size = max(1, _CHUNK // max(1, numbers_per_move))
    yield from torch.split(chosen, size) if len(chosen) else ()
