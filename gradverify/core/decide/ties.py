"""Claims at a kink judged together: a row of values, each between its one-sided derivatives, that no piece explains.

What backward returns at a kink should lie in the convex hull of the derivatives of the smooth pieces that meet there
(Clarke's generalised gradient), and so in their affine hull. That is, along any direction in which all pieces have one
and the same derivative, backward must have that one too: both inputs of a maximum rise together, and so does it. Such
directions are combinations of a few random ones, found where the derivatives of pieces close by do not differ, and
believed when new points around, and both sides of the point itself, show the same. Nothing else accuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext, focused
from gradverify.core.decide.misfit import ALIKE, AUDIBLE, CLEARLY, Row, groups, suspects
from gradverify.core.decide.verdict import Code, Judged, Reason, agrees, decide
from gradverify.core.estimate.nearby_gradients import DISTANCE, STEP, slopes, spread_evenly
from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.forward.sampler import Sampler, along, places
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import any_set

_AGAIN = 4  # of the points at which an accusation is looked at again, on each of the lines through the point
_ASIDE = 2.0**-3  # how far these points are off their line
_GAPS = 256  # places among the others that the inputs of a row are put in, at most
_ROWS = 4096  # outputs looked at, at most
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
class _Proof:
    """What the pieces say of a row along its direction."""

    row: Row
    rise: float
    claimed: float
    unsure: float


def judge_together(context: JudgingContext, parts: Parts, seed: int) -> Tied:
    """Accuse kinked entries, each fine alone, whose row as a whole is the gradient of no piece; `parts` are all moves.

    Costs nothing where no output has several kinked inputs, else 48 forwards, and some 80 before it accuses.
    """
    if context.sampled.problem.order > 1 or not _fine(context) or all(agrees(judged) for _, judged in parts):
        return Tied(parts=parts)
    kinked = _kinked(context, parts)
    rows = _rows(context, parts, kinked)
    if not len(rows):
        return Tied(parts=parts)
    generator = torch.Generator().manual_seed(seed + 5)
    near, kinked = focused(context, rows), kinked[:, rows]
    proofs: list[_Proof] = []
    for group in groups(near, list(suspects(near, kinked, generator))):
        proofs += _proven(near, group, generator)
    if not proofs:
        return Tied(parts=parts)
    marked = [(chosen, _marked(context, rows, chosen, judged, proofs)) for chosen, judged in parts]
    return Tied(parts=marked, ties=tuple(_tie(near, proof) for proof in proofs))


def _kinked(context: JudgingContext, parts: Parts) -> Tensor:
    """Tell which entries are accepted at a kink; (M, m)."""
    return (torch.cat([judged.code for _, judged in parts]) == Code.KINK) & (context.column_groups.column_of >= 0)


def _rows(context: JudgingContext, parts: Parts, kinked: Tensor) -> Tensor:
    """Return the outputs with several kinked inputs, of which everything else is right; (k,)."""
    several = kinked.sum(dim=0) > 1
    if not any_set(several):
        return several.nonzero().squeeze(1)
    right = (
        kinked | (torch.cat([judged.code for _, judged in parts]) == Code.MATCH) | (context.column_groups.column_of < 0)
    )
    return (several & right.all(dim=0)).nonzero().squeeze(1)[:_ROWS]


def _fine(context: JudgingContext) -> bool:
    """Tell whether the inputs can hold the steps."""
    return context.sampled.dtypes <= {torch.float64, torch.complex128}


def _proven(near: JudgingContext, group: Sequence[Row], generator: torch.Generator) -> Iterator[_Proof]:
    """Yield the rows whose claim is off along their direction at every point around, and to both sides of the point.

    Points on the lines along which backward claims most, and off them by a little, show pieces that random points miss.
    """
    length = own_or_shared(near.lengths)
    direction, claims, signs, alike = (torch.zeros_like(length) for _ in range(4))
    for row in group:
        claimed = near.claimed[row.chosen, row.number]
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
    fits = _rises_alike(near, sampled, group)
    if any_set(fits):
        others = [DISTANCE * length * place for place in _among_others(near, group, generator)]
        among = slopes(sampled, others, [direction]).squeeze(1)
        found = torch.cat([found, torch.where(fits, among, found[-1])])
    for place, row in enumerate(group):
        mine = found[:, place] / row.length
        terms = near.claimed[row.chosen, row.number] * row.direction
        size = max(float(terms.abs().sum()), float(mine.abs().max()), row.least)
        noise = float(near.noise.level[row.number]) / (STEP * row.length)
        same = ALIKE * size + AUDIBLE * noise
        rise, claimed_rise = float(mine.mean()), float(terms.sum())
        steady = float(mine.max() - mine.min()) <= same
        if steady and abs(claimed_rise - rise) > CLEARLY * same:
            yield _Proof(row=row, rise=rise, claimed=claimed_rise, unsure=same)


def _rises_alike(near: JudgingContext, sampled: Sampler, group: Sequence[Row]) -> Tensor:
    """Tell which rows claim as much as their output rises by where all of its inputs rise alike; (rows,).

    Others are the gradient of no piece however many of these there are.
    """
    direction, claims = torch.zeros_like(sampled.point), torch.zeros_like(sampled.value)
    for place, row in enumerate(group):
        column_of, claimed = near.column_groups.column_of[:, row.number], near.claimed[:, row.number]
        direction[column_of[column_of >= 0]] = row.length
        claims[place] = row.length * claimed[column_of >= 0].sum()
    rise = (along(sampled, STEP * direction) - along(sampled, -STEP * direction)) / (2 * STEP)
    return (rise - claims).abs() <= CLEARLY * (
        ALIKE * rise.abs() + AUDIBLE * near.noise.level[[row.number for row in group]] / STEP
    )


def _among_others(near: JudgingContext, group: Sequence[Row], generator: torch.Generator) -> Iterator[Tensor]:
    """Yield displacements, in length scales, that put the inputs of each row next to each other among all others.

    Where many are tied, as for a quantile, nearly all pieces are of other inputs than these.
    """
    mine = torch.zeros_like(near.sampled.point, dtype=torch.bool)
    for row in group:
        mine[row.inputs] = True
    count = int((~mine).sum())
    spread = spread_evenly(~mine, generator)
    for gap in torch.linspace(0, count, min(count + 1, _GAPS)).round().tolist():
        beside = _ASIDE * scattered(torch.ones_like(spread), generator)
        yield torch.where(mine, (2.0 * (gap - 0.5) + beside) / max(1, count) - 1.0, spread)


def _marked(context: JudgingContext, rows: Tensor, chosen: Tensor, judged: Judged, proofs: Sequence[_Proof]) -> Judged:
    """Put the accusations into the verdicts on some moves; the numeric entries are the nearest that would be right."""
    wrong, numeric, bar = torch.zeros_like(judged.kinked), judged.numeric.clone(), judged.bar.clone()
    error, allowed = judged.error.clone(), judged.allowed.clone()
    place = torch.full((context.column_groups.count,), -1, dtype=torch.long, device=chosen.device)
    place[chosen] = torch.arange(len(chosen), device=chosen.device)
    for proof in proofs:
        row, output = proof.row, int(rows[proof.row.number])
        accused = row.kinked & (row.direction.abs() > _NONE)
        here = (place[row.chosen] >= 0) & accused
        spot = (place[row.chosen[here]], torch.full_like(row.chosen[here], output))
        share = row.direction[here] / row.direction[accused].square().sum()
        off = (proof.claimed - proof.rise) * share
        wrong[spot] = True
        numeric[spot] = context.claimed[row.chosen[here], output] - off
        bar[spot] = proof.unsure * share.abs()
        error[spot], allowed[spot] = off.abs(), BAR_FACTOR * proof.unsure * share.abs()
    rules = [(wrong, Reason.NOT_A_SUBGRADIENT)]
    return decide(judged, rules, numeric=numeric, bar=bar, error=error, allowed=allowed)


def _tie(near: JudgingContext, proof: _Proof) -> Tie:
    row = proof.row
    part = row.direction.abs() > _NONE
    return Tie(
        output=int(places(near.sampled, torch.tensor([row.number]))[0]),
        inputs=tuple(row.inputs[part].tolist()),
        direction=tuple(row.direction[part].tolist()),
        rise=proof.rise if abs(proof.rise) > proof.unsure else 0.0,
        claimed=proof.claimed,
    )
