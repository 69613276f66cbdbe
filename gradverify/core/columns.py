"""Columns of the Jacobian judged: the cheap pass for all, the thorough one for those in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core import richardson, sampler
from gradverify.core.compare import (
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
from gradverify.core.noise import Noise, lasting
from gradverify.core.nonsmooth import examine
from gradverify.core.portion import portion
from gradverify.core.sampler import Sampler, magnitudes
from gradverify.core.samples import Samples, Steps, finest_noise, joined, of_rows, sample, samples_of, unmoved, walked
from gradverify.core.scale import Scales, own_or_shared
from gradverify.core.shape import suspicious

_CHUNK = 2_000_000  # sampled numbers held at a time
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
    loudest: Callable[[], Tensor]  # () -> (m,) of all outputs, however few are looked at: see `noise.lasting`


def bench(sampled: Sampler, noise: Noise, lengths: Scales, moves: Moves, claimed: Tensor, settings: Settings) -> Bench:
    """Put together what every move is judged with; `claimed` is (M, m)."""
    dtypes = {primal.tensor.dtype for primal in sampled.problem.primals}
    allowance = Allowance(
        rtol=relative_tolerance(settings.tolerances, dtypes),
        floor=settings.tolerances.atol or 0.0,
        beside=entry_scale(moves, claimed),
        scale=resolution_scale(moves, claimed, sampled.size, lengths.step),
        largest=magnitudes(sampled, claimed.abs().amax(dim=0)) if len(claimed) else sampled.value,
        order=sampled.problem.order,
    )
    return Bench(
        sampled=sampled,
        noise=noise,
        lengths=lengths,
        moves=moves,
        claimed=claimed,
        allowance=allowance,
        loudest=cache(lambda: lasting(sampled, lengths)),
    )


def _excused(at: Bench, chosen: Tensor, judged: Judged) -> Tensor:
    """Return per entry what may be left of something that cancels inside, however steady it looks; (C, m).

    Such rounding can be heard at some distance from the point. That is listened for only where it would change a
    verdict.
    """
    faint = _faint(at, chosen)
    if not bool(((judged.code == Code.MISMATCH) & (judged.error <= faint)).any()):
        return faint
    heard = at.loudest() if at.sampled.kept is None else at.loudest()[at.sampled.kept]
    return torch.minimum(faint, _units(at) * heard / owned(at.moves, chosen, own_or_shared(at.lengths)))


def _faint(at: Bench, chosen: Tensor) -> Tensor:
    """Return per entry what rounding of quantities of the output's or the input tensor's size may amount to; (C, m)."""
    sampled = at.sampled
    inputs = sampled.point.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = torch.ones_like(inputs)  # of each coordinate's own tensor
    for block in sampled.inputs:
        own = inputs[block.coordinates]
        largest[block.coordinates] = own.max() if bool((own > 0).any()) else 1.0
    share = sampled.size.unsqueeze(0) / owned(at.moves, chosen, largest)
    # An output far below the rounding of the rounding of the inputs is nothing that is left of them.
    tiny = (share > 0) & (share < sampled.unit.square())
    return _units(at) * sampled.unit * torch.where(tiny, share, share.clamp(min=1.0))


def _units(at: Bench) -> float:
    return _UNITS_OF_BACKWARD if at.sampled.problem.order > 1 else _UNITS


def judge_moves(at: Bench, chosen: Tensor) -> Judged:
    """Judge all entries of the moves (C,): the cheap pass for all, the thorough one for those in doubt."""
    first = _first(at, chosen)
    doubt = _bounded(first.doubt, first.judged, first.bends)
    rows = doubt.any(dim=1).nonzero().squeeze(1)
    if not len(rows):
        return first.judged
    judged = _copy(first.judged)
    for some in _chunks(rows, 2 * _DEPTH * _width(at)):
        outputs = doubt[some].any(dim=0).nonzero().squeeze(1)  # those that are in doubt for these moves
        _put(judged, doubt, some, outputs, thorough(focused(at, outputs), chosen[some]))
    return judged


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    """What the cheap pass says, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the function bends as no smooth one does
    doubt: Tensor  # bool: deserves the thorough pass


def _first(at: Bench, chosen: Tensor) -> _First:
    """Go through all entries of the moves (C,) by the cheap pass, as many at a time as stay in a cache."""
    walk = walked(at.sampled, at.moves, chosen, richardson.steps(at.lengths.step))
    claimed = at.claimed if len(chosen) == at.moves.count else at.claimed[chosen]
    allowance = of_moves(at.allowance, chosen)
    whole: _First | None = None
    for outputs, tiles in _tiles(len(claimed), claimed.shape[1], portion(claimed)):
        sampled, noise = _looking_at(at, outputs)
        for rows in tiles:
            limits = part_of(allowance, rows, outputs)
            samples = samples_of(at.sampled, walk, rows, outputs)
            found = _cheap(sampled, noise, samples, claimed[rows, outputs], limits)
            if found.doubt.shape == claimed.shape:
                return found
            whole = _blank(claimed) if whole is None else whole
            _write(whole, found, rows, outputs)
    return _blank(claimed) if whole is None else whole


def _cheap(sampled: Sampler, noise: Noise, samples: Samples, claimed: Tensor, allowance: Allowance) -> _First:
    level, zero = finest_noise(sampled, noise, samples), allowance.zero
    judged = judge_smooth(claimed, richardson.extrapolate(samples, level), allowance, zero)
    own = claimed.abs()
    bends = suspicious(sampled, samples, level).logical_or_(judged.bar == torch.inf)
    # An output that never moved says most at the largest steps, where backward claims that it does.
    idle = (judged.numeric == 0).logical_and_(own > zero)
    if bool(idle.any()):
        idle &= unmoved(sampled, samples).all(dim=1)
    return _First(judged=judged, bends=bends, doubt=in_doubt(judged, bends | idle, own, allowance))


def _looking_at(at: Bench, outputs: slice) -> tuple[Sampler, Noise]:
    """Return the forward and its noise for some of the outputs."""
    if outputs == slice(0, at.sampled.value.numel()):
        return at.sampled, at.noise
    return sampler.focused(at.sampled, outputs), at.noise.of(outputs)


def _tiles(moves: int, outputs: int, most: int) -> Iterator[tuple[slice, list[slice]]]:
    """Yield outputs, and with them moves, such that about so many entries are judged at a time."""
    width = min(max(1, outputs), most)
    height = max(1, most // width)
    rows = [slice(start, min(moves, start + height)) for start in range(0, moves, height)]
    for start in range(0, outputs, width):
        yield slice(start, min(outputs, start + width)), rows


def _blank(like: Tensor) -> _First:
    """Return room for what is said of so many entries."""
    numeric, bar, error, allowed = like.new_empty(4, *like.shape)
    bends, doubt = torch.empty((2, *like.shape), dtype=torch.bool, device=like.device)
    none = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
    code = torch.empty(like.shape, dtype=torch.int8, device=like.device)
    judged = Judged(numeric=numeric, bar=bar, error=error, allowed=allowed, code=code, kinked=none, bent=none)
    return _First(judged=judged, bends=bends, doubt=doubt)


def _write(whole: _First, found: _First, rows: slice, outputs: slice) -> None:
    """Put what is said of some entries in its place."""
    for name in ("numeric", "bar", "error", "allowed", "code"):
        getattr(whole.judged, name)[rows, outputs] = getattr(found.judged, name)
    whole.bends[rows, outputs] = found.bends
    whole.doubt[rows, outputs] = found.doubt


def thorough(at: Bench, chosen: Tensor) -> Judged:
    """Judge all entries of the moves by a ladder of steps, a few moves at a time."""
    found = [_climb(at, part) for part in _chunks(chosen, 2 * _DEPTH * _width(at))]
    return Judged(**{name: torch.cat([getattr(part, name) for part in found]) for name in _FIELDS})


def focused(at: Bench, outputs: Tensor | slice) -> Bench:
    """Return the bench with some of the outputs only, given by their numbers."""
    if isinstance(outputs, slice) and outputs == slice(0, at.sampled.value.numel()):
        return at
    moves = replace(at.moves, owner=at.moves.owner[:, outputs], direct=False)
    allowance = part_of(at.allowance, slice(None), outputs)
    sampled, claimed = sampler.focused(at.sampled, outputs), at.claimed[:, outputs]
    return replace(at, sampled=sampled, noise=at.noise.of(outputs), moves=moves, claimed=claimed, allowance=allowance)


def judge_all(at: Bench) -> Iterator[tuple[Tensor, Judged]]:
    """Yield moves and the verdicts on their entries, a few moves at a time, until all are judged."""
    every = torch.arange(at.moves.count, device=at.sampled.point.device)
    for chosen in _chunks(every, richardson.DEPTH * _width(at)):
        yield chosen, judge_moves(at, chosen)


def of_moves(allowance: Allowance, chosen: Tensor) -> Allowance:
    """Return the allowance of some of the moves, which are in order."""
    if len(chosen) == len(allowance.beside):
        return allowance
    return Allowance(
        rtol=allowance.rtol,
        floor=allowance.floor,
        beside=allowance.beside[chosen],
        scale=allowance.scale[chosen],
        largest=allowance.largest,
        order=allowance.order,
    )


def part_of(allowance: Allowance, moves: slice, outputs: Tensor | slice) -> Allowance:
    """Return the allowance of some of the moves and some of the outputs."""
    return Allowance(
        rtol=allowance.rtol,
        floor=allowance.floor,
        beside=allowance.beside[moves, outputs],
        scale=allowance.scale[moves, outputs],
        largest=allowance.largest[outputs],
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
    judged = judge_local(claimed, local, allowance, torch.zeros_like(claimed))
    if not bool((judged.code == Code.MISMATCH).any()):
        return judged, local.height
    faint = _excused(at, samples.moves, judged)
    judged = judge_local(claimed, local, allowance, faint)
    open_ = (at.noise.loud > at.noise.level) & local.unsteady & (judged.code == Code.MISMATCH)
    if bool(open_.any()):
        loud = replace(at.noise, level=at.noise.loud)
        other = judge_local(claimed, examine(at.sampled, loud, samples, height), allowance, faint)
        every = torch.arange(len(open_), device=open_.device), torch.arange(open_.shape[1], device=open_.device)
        code = other.code.masked_fill((other.code == Code.MATCH) & ~at.noise.lasting, Code.UNDETERMINED)
        judged = _replaced(judged, open_, *every, replace(other, code=code))
    return judged, local.height


def _replaced(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> Judged:
    """Return the verdicts with those at `rows` and `outputs`, as far as they are in `where`, put in their place."""
    copy = _copy(judged)
    _put(copy, where, rows, outputs, found)
    return copy


def _copy(judged: Judged) -> Judged:
    return Judged(**{name: getattr(judged, name).clone() for name in _FIELDS})


def _put(judged: Judged, where: Tensor, rows: Tensor, outputs: Tensor, found: Judged) -> None:
    """Put what was found at `rows` and `outputs`, as far as they are in `where`, into its place."""
    place = (rows.unsqueeze(1), outputs.unsqueeze(0))
    mine = where[place]
    for name in _FIELDS:
        value = getattr(judged, name)
        value[place] = torch.where(mine, getattr(found, name), value[place])


def _width(at: Bench) -> int:
    return at.sampled.value.numel() + at.sampled.point.numel()


def _chunks(chosen: Tensor, numbers_per_move: int) -> Iterator[Tensor]:
    size = max(1, _CHUNK // max(1, numbers_per_move))
    yield from torch.split(chosen, size) if len(chosen) else ()
