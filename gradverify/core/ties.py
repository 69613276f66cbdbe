"""Claims at a kink judged together: a row of values, each between its one-sided derivatives, that no piece explains.

What backward returns at a kink should lie in the convex hull of the derivatives of the smooth pieces that meet there
(Clarke's generalised gradient), and so in their affine hull. That is, along any direction in which all pieces have one
and the same derivative, backward must have that one too: both inputs of a maximum rise together, and so does it. Such
directions are combinations of a few random ones, found where the derivatives of pieces close by do not differ, and
believed when new points around, and both sides of the point itself, show the same. Nothing else accuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.bench import Bench, focused
from gradverify.core.chance import scattered
from gradverify.core.compare import Code, Judged, agrees
from gradverify.core.moves import to_owners
from gradverify.core.pieces import DISTANCE, STEP, slopes
from gradverify.core.sampler import along, places
from gradverify.core.samples import BAR_FACTOR
from gradverify.core.scale import own_or_shared

_DIRECTIONS = 3  # random ones, beside that of all kinked coordinates rising alike
_PIECES = 8  # points close by at which they are taken
_AGAIN = 4  # of the points at which an accusation is looked at again, on each of the lines through the point
_ASIDE = 2.0**-3  # how far these points are off their line
_ALIKE = 1e-4  # derivatives of pieces that differ by no more than this part of their terms are the same
_CLEARLY = 30.0  # a claim off by this many times what they may differ is none of any piece
_AUDIBLE = 8.0  # how far above the noise a difference must stand
_ROWS = 4096  # outputs looked at, at most
_GROUPS = 4  # of outputs without an input in common, looked at together before they are accused
_NONE = 1e-6  # of the largest part of a direction: nothing

Parts = list[tuple[Tensor, Judged]]  # moves, and the verdicts on their entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A direction along which the function is smooth although its coordinates have kinks, and backward is wrong."""

    output: int  # coordinate
    inputs: tuple[int, ...]  # coordinates
    direction: tuple[float, ...]  # how far each of them moves
    rise: float  # what the output changes by
    claimed: float  # what backward says


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """The verdicts after rows were looked at as a whole, and what they are founded on."""

    parts: Parts
    ties: tuple[Tie, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One output with several kinked inputs, and the direction in which its claim may be wrong."""

    number: int  # among the rows looked at
    moves: Tensor  # (k,) of its kinked entries
    inputs: Tensor  # (k,) coordinates
    direction: Tensor  # (k,) the largest is 1
    length: float  # of the shortest input


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """What the pieces say of a row along its direction."""

    row: _Row
    rise: float
    claimed: float
    unsure: float


def judge_together(at: Bench, parts: Parts, seed: int) -> Tied:
    """Accuse kinked entries, each fine alone, whose row as a whole is the gradient of no piece; `parts` are all moves.

    Costs nothing where no output has several kinked inputs, else 40 forwards, and some 80 before it accuses.
    """
    if at.sampled.problem.order > 1 or not _fine(at) or all(agrees(judged) for _, judged in parts):
        return Tied(parts=parts)
    kinked = _kinked(at, parts)
    rows = _rows(at, parts, kinked)
    if not len(rows):
        return Tied(parts=parts)
    generator = torch.Generator().manual_seed(seed + 5)
    near, kinked = focused(at, rows), kinked[:, rows]
    proofs: list[_Proof] = []
    for group in _groups(near, list(_suspects(near, kinked, generator))):
        proofs += _proven(near, group, generator)
    if not proofs:
        return Tied(parts=parts)
    marked = [(chosen, _marked(at, rows, chosen, judged, proofs)) for chosen, judged in parts]
    return Tied(parts=marked, ties=tuple(_tie(near, proof) for proof in proofs))


def _kinked(at: Bench, parts: Parts) -> Tensor:
    """Tell which entries are accepted at a kink; (M, m)."""
    return (torch.cat([judged.code for _, judged in parts]) == Code.KINK) & (at.moves.owner >= 0)


def _rows(at: Bench, parts: Parts, kinked: Tensor) -> Tensor:
    """Return the outputs with several kinked inputs, of which everything else is right; (k,)."""
    several = kinked.sum(dim=0) > 1
    if not bool(several.any()):
        return several.nonzero().squeeze(1)
    right = kinked | (torch.cat([judged.code for _, judged in parts]) == Code.MATCH) | (at.moves.owner < 0)
    return (several & right.all(dim=0)).nonzero().squeeze(1)[:_ROWS]


def _fine(at: Bench) -> bool:
    """Tell whether the inputs can hold the steps."""
    return all(primal.tensor.dtype in (torch.float64, torch.complex128) for primal in at.sampled.problem.primals)


def _suspects(near: Bench, kinked: Tensor, generator: torch.Generator) -> Iterator[_Row]:
    """Yield the rows whose claim is off along a direction in which the pieces close by do not differ; worst first."""
    length = own_or_shared(near.lengths)
    mine = torch.zeros_like(length, dtype=torch.bool)
    mine[near.moves.owner[kinked]] = True
    alike = torch.where(mine, length[mine].min(), 0.0)
    directions = [alike, *(torch.where(mine, scattered(length, generator), 0.0) for _ in range(_DIRECTIONS))]
    half = [DISTANCE * scattered(length, generator) for _ in range(_PIECES // 2)]
    around = [*half, *(-place for place in half)]  # a kink in one sum of inputs shows both its sides
    found = slopes(near.sampled, around, directions).permute(2, 0, 1)  # (rows, pieces, directions)
    claimed = torch.stack([_terms(near, direction).sum(dim=0) for direction in directions], dim=1)
    sizes = torch.stack([_terms(near, direction).abs().sum(dim=0) for direction in directions], dim=1)
    size = torch.maximum(sizes, found.abs().amax(dim=1)).clamp(min=torch.finfo(torch.float64).tiny)
    noise = (near.noise.level.unsqueeze(1) / (STEP * size)).amax(dim=1)
    usable = torch.isfinite(found).flatten(1).all(dim=1) & torch.isfinite(claimed).all(dim=1) & torch.isfinite(noise)
    same = _ALIKE + _AUDIBLE * torch.where(usable, noise, 0.0)
    found = torch.where(usable[:, None, None], found / size.unsqueeze(1), 0.0)
    off = torch.where(usable.unsqueeze(1), claimed / size - found.mean(dim=1), 0.0)
    centred = found - found.mean(dim=1, keepdim=True)
    _, spread, axes = torch.linalg.svd(centred, full_matrices=False)
    flat = spread <= (same * _PIECES**0.5).unsqueeze(1)  # the pieces do not differ along these
    weights = (torch.where(flat, (axes @ off.unsqueeze(2)).squeeze(2), 0.0).unsqueeze(1) @ axes).squeeze(1)
    rising = (centred[:, :, 0].abs().amax(dim=1) <= same) & (off[:, 0].abs() > _CLEARLY * same)
    weights[rising] = torch.nn.functional.one_hot(torch.tensor(0), _DIRECTIONS + 1) * off[rising, :1]
    misfit = weights.norm(dim=1)
    wrong = (misfit > _CLEARLY * same).nonzero().squeeze(1)
    for number in wrong[misfit[wrong].argsort(descending=True, stable=True)].tolist():
        moves = kinked[:, number].nonzero().squeeze(1)
        inputs = near.moves.owner[moves, number]
        direction = torch.stack([each[inputs] for each in directions], dim=1) @ (weights[number] / size[number])
        largest = direction[direction.abs().argmax()]
        if float(largest) != 0:
            yield _Row(
                number=number,
                moves=moves,
                inputs=inputs,
                direction=direction / largest,
                length=float(length[inputs].min()),
            )


def _groups(near: Bench, rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield sets of rows that have no input in common, as few as hold them all, and not more than a few."""
    left = list(rows)
    for _ in range(_GROUPS):
        taken = torch.zeros_like(near.sampled.point, dtype=torch.bool)
        group: list[_Row] = []
        rest: list[_Row] = []
        for row in left:
            owner = near.moves.owner[:, row.number]
            reach = owner[owner >= 0]
            if bool(taken[reach].any()):
                rest.append(row)
            else:
                taken[reach] = True
                group.append(row)
        if group:
            yield group
        left = rest


def _proven(near: Bench, group: Sequence[_Row], generator: torch.Generator) -> Iterator[_Proof]:
    """Yield the rows whose claim is off along their direction at every point around, and to both sides of the point.

    Points on the lines along which backward claims most, and off them by a little, show pieces that random points miss.
    """
    length = own_or_shared(near.lengths)
    direction, claims, signs, alike = (torch.zeros_like(length) for _ in range(4))
    for row in group:
        claimed = near.claimed[row.moves, row.number]
        direction[row.inputs] = row.length * row.direction
        claims[row.inputs] = row.length * claimed / claimed.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
        signs[row.inputs] = row.length * claimed.sign()
        alike[row.inputs] = row.length
    around = [
        DISTANCE * (sign * line + _ASIDE * scattered(length, generator))
        for line in (claims, signs, alike, direction)
        for sign in (1, -1)
        for _ in range(_AGAIN)
    ]
    around += [DISTANCE * scattered(length, generator) for _ in range(2 * _AGAIN)]
    sampled = focused(near, torch.tensor([row.number for row in group], device=length.device)).sampled
    here = [(along(sampled, sign * STEP * direction) - sampled.value) / (sign * STEP) for sign in (1, -1)]
    found = torch.cat([slopes(sampled, around, [direction]).squeeze(1), torch.stack(here)])
    for place, row in enumerate(group):
        mine = found[:, place] / row.length
        terms = near.claimed[row.moves, row.number] * row.direction
        size = max(float(terms.abs().sum()), float(mine.abs().max()))
        noise = float(near.noise.level[row.number]) / (STEP * row.length)
        same = _ALIKE * size + _AUDIBLE * noise
        rise, claimed_rise = float(mine.mean()), float(terms.sum())
        steady = float(mine.max() - mine.min()) <= same
        if steady and abs(claimed_rise - rise) > _CLEARLY * same:
            yield _Proof(row=row, rise=rise, claimed=claimed_rise, unsure=same)


def _marked(at: Bench, rows: Tensor, chosen: Tensor, judged: Judged, proofs: Sequence[_Proof]) -> Judged:
    """Put the accusations into the verdicts on some moves; the numeric entries are the nearest that would be right."""
    code, numeric, bar = judged.code.clone(), judged.numeric.clone(), judged.bar.clone()
    error, allowed = judged.error.clone(), judged.allowed.clone()
    place = torch.full((at.moves.count,), -1, dtype=torch.long, device=chosen.device)
    place[chosen] = torch.arange(len(chosen), device=chosen.device)
    for proof in proofs:
        row, output = proof.row, int(rows[proof.row.number])
        here = (place[row.moves] >= 0) & (row.direction.abs() > _NONE)
        spot = (place[row.moves[here]], torch.full_like(row.moves[here], output))
        share = row.direction[here] / row.direction.square().sum()
        off = (proof.claimed - proof.rise) * share
        code[spot] = Code.ASTRAY
        numeric[spot] = at.claimed[row.moves[here], output] - off
        bar[spot] = proof.unsure * share.abs()
        error[spot], allowed[spot] = off.abs(), BAR_FACTOR * proof.unsure * share.abs()
    return replace(judged, code=code, numeric=numeric, bar=bar, error=error, allowed=allowed)


def _tie(near: Bench, proof: _Proof) -> Tie:
    row = proof.row
    part = row.direction.abs() > _NONE
    return Tie(
        output=int(places(near.sampled, torch.tensor([row.number]))[0]),
        inputs=tuple(row.inputs[part].tolist()),
        direction=tuple(row.direction[part].tolist()),
        rise=proof.rise if abs(proof.rise) > proof.unsure else 0.0,
        claimed=proof.claimed,
    )


def _terms(near: Bench, direction: Tensor) -> Tensor:
    """Return the terms that make up what backward says of each row along a direction, (M, m)."""
    return near.claimed * to_owners(near.moves, direction)
