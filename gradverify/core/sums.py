"""A wrong block too large to be looked at whole, asked with random vectors whether a pattern explains all of its error.

What is claimed in every entry is a pattern of the derivative only if u·A·v says so for random u and v that reach over
the whole block: a pattern seen in some columns alone is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.core.analytic import Reverse, row
from gradverify.core.chance import scattered
from gradverify.core.compare import relative_tolerance
from gradverify.core.coordinates import Block
from gradverify.core.directional import slope
from gradverify.core.ground import Ground
from gradverify.core.probe import CLOSER, FIRST, levelled, weights
from gradverify.core.samples import BAR_FACTOR, Estimate
from gradverify.core.tally import Entries

_COTANGENTS = 4  # of each of the two kinds of weights
_TANGENTS = 5  # and one more that moves inputs such that they matter alike
_SHARP = 1e-8  # a bar below this part of the sum is good enough to do without closer steps
_CLOSE = 1e-3  # of the error: a pattern that is no coincidence leaves less
_CAP = 0.1  # of the error: no more may be put down to the measurement
_SHOWS = 0.5  # of what there is: where more is allowed, an error might not show
_ROUNDINGS, _ULP = 10, 4 * torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One block d of / d wrt with mismatches, and all there is to ask it with."""

    of: Block
    wrt: Block
    ground: Ground
    found: Entries  # the wrong entries that are known
    all_places: bool  # no other input or output than those of `found` has a wrong entry
    seed: int

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""
        return self.ground.sampled.inputs

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""
        return self.ground.sampled.outputs

    @property
    def backward(self) -> Reverse:
        """The problem, and its vjp."""
        return self.ground.backward

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.ground.sampled.value.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """Sums over all entries of a block, one per cotangent and direction."""

    value: Tensor  # (K, L)
    bar: Tensor  # (K, L)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A block with K cotangents and L directions over all of it, and what both sides say to each pair."""

    sums: Sums
    cotangents: Tensor  # (K, m)
    answers: Tensor  # (K, n)
    directions: Tensor  # (L, n)
    slopes: tuple[Estimate, ...]  # of every output along each direction
    claimed: Tensor  # (K, L)
    numeric: Summed
    rounding: Tensor  # (K, L) what adding up in backward may leave
    typical: Tensor  # (K, L) the size of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Entry (o, i) of the claimed block is by_row[o] * by_column[i] * the derivative of rows[o] by columns[i]."""

    rows: Tensor | None = None  # (p,) coordinates, None: the block's own
    columns: Tensor | None = None  # (q,)
    by_row: Tensor | None = None  # (p,) factors, None: ones
    by_column: Tensor | None = None  # (q,)


def ask(sums: Sums) -> Asked:
    """Ask both sides; costs 36 forwards, more where the function bends, and 8 vjps."""
    generator = torch.Generator().manual_seed(sums.seed + 5)
    ground, of, wrt = sums.ground, sums.of, sums.wrt
    within = torch.zeros_like(ground.lengths.step)
    within[wrt.coordinates] = ground.lengths.step[wrt.coordinates]
    directions = [scattered(within, generator) for _ in range(_TANGENTS)]
    plain = [slope(ground.sampled, ground.noise, direction, FIRST) for direction in directions]
    judged = torch.zeros_like(ground.sampled.value)
    judged[of.coordinates] = 1.0
    kinds = weights(ground.sampled, torch.stack([found.value for found in plain]))
    cotangents = torch.stack([scattered(weight * judged, generator) for weight in kinds for _ in range(_COTANGENTS)])
    answers = torch.stack([row(ground.backward, cotangent) for cotangent in cotangents])
    directions.append(scattered(levelled(within, answers), generator))
    slopes = tuple(_steep(ground, cotangents, direction) for direction in directions)
    stacked = torch.stack(directions)
    claimed, numeric = answers @ stacked.T, _summed(cotangents, slopes)
    error = (claimed - numeric.value).nan_to_num(0.0).reshape(2, _COTANGENTS, -1)
    size = (answers.square() @ stacked.T.square()).sqrt()
    return Asked(
        sums=sums,
        cotangents=cotangents,
        answers=answers,
        directions=stacked,
        slopes=slopes,
        claimed=claimed,
        numeric=numeric,
        rounding=_ROUNDINGS * _eps(ground) * size + _ULP * answers.abs() @ stacked.T.abs(),
        typical=error.square().mean(1, keepdim=True).sqrt().expand_as(error).reshape(claimed.shape),
    )


def expected(asked: Asked, pattern: Pattern) -> Summed:
    """Return what the sums should be if the pattern held; costs forwards only where it is about columns."""
    of, wrt = asked.sums.of, asked.sums.wrt
    given = asked.cotangents[:, of.coordinates]
    given = given if pattern.by_row is None else given * pattern.by_row
    cotangents = _placed(given, asked.cotangents, of, pattern.rows)
    slopes = asked.slopes
    if pattern.columns is not None or pattern.by_column is not None:
        moves = asked.directions[:, wrt.coordinates]
        moves = moves if pattern.by_column is None else moves * pattern.by_column
        slopes = along(asked, _placed(moves, asked.directions, wrt, pattern.columns))
    return _summed(cotangents, slopes)


def exchanged(asked: Asked) -> Summed:
    """Return what the sums should be if the transposed Jacobian were claimed; costs 48 forwards or more."""
    of, wrt, ground = asked.sums.of, asked.sums.wrt, asked.sums.ground
    weighing = torch.zeros(len(asked.directions), asked.cotangents.shape[1], device=asked.sums.device).double()
    weighing[:, of.coordinates] = asked.directions[:, wrt.coordinates]
    found = []
    for cotangent in asked.cotangents:
        move = torch.zeros_like(ground.sampled.point)
        move[wrt.coordinates] = cotangent[of.coordinates]
        size = (move.abs() / ground.lengths.step).max()
        found.append((_steep(ground, weighing, move / size), size))
    slopes = [Estimate(value=each.value * size, bar=each.bar * size) for each, size in found]
    turned = _summed(weighing, slopes)
    return Summed(value=turned.value.T, bar=turned.bar.T)


def along(asked: Asked, directions: Tensor) -> tuple[Estimate, ...]:
    """Return the slopes of every output along some directions, (L, n)."""
    return tuple(_steep(asked.sums.ground, asked.cotangents, direction) for direction in directions)


def holds(asked: Asked, found: Summed, claimed: Tensor | None = None) -> bool:
    """Tell whether backward's sums, or those given, are the expected ones, as nearly as measurement can tell."""
    said = asked.claimed if claimed is None else claimed
    slack = torch.minimum(BAR_FACTOR * found.bar + asked.rounding, _CAP * asked.typical)
    return bool(((said - found.value).abs() <= slack + _CLOSE * asked.typical).all())


def explains(asked: Asked, pattern: Pattern) -> bool:
    """Tell whether the pattern holds all over the block."""
    return holds(asked, expected(asked, pattern))


def scaled(found: Summed, factor: float) -> Summed:
    """Return the sums times a factor."""
    return Summed(value=factor * found.value, bar=abs(factor) * found.bar)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Both sides of the sums over the entries of some inputs, or outputs, of a block."""

    claimed: Tensor  # (K, L)
    numeric: Summed


def of_inputs(asked: Asked, inside: Tensor) -> Part:
    """Return the sums over the entries of some inputs, (q,) bool; costs 36 forwards or more."""
    moves = torch.zeros_like(asked.directions)
    moves[:, asked.sums.wrt.coordinates] = asked.directions[:, asked.sums.wrt.coordinates] * inside
    return Part(claimed=asked.answers @ moves.T, numeric=_summed(asked.cotangents, along(asked, moves)))


def of_outputs(asked: Asked, inside: Tensor) -> Part:
    """Return the sums over the entries of some outputs, (p,) bool; costs 8 vjps."""
    given = torch.zeros_like(asked.cotangents)
    given[:, asked.sums.of.coordinates] = asked.cotangents[:, asked.sums.of.coordinates] * inside
    answers = torch.stack([row(asked.sums.backward, cotangent) for cotangent in given])
    return Part(claimed=answers @ asked.directions.T, numeric=_summed(given, asked.slopes))


def rest(asked: Asked, part: Part) -> Part:
    """Return the sums over all other entries."""
    whole = asked.numeric
    numeric = Summed(value=whole.value - part.numeric.value, bar=whole.bar + part.numeric.bar)
    return Part(claimed=asked.claimed - part.claimed, numeric=numeric)


def agrees(asked: Asked, part: Part) -> bool:
    """Tell whether both sides say the same of a part."""
    return holds(asked, part.numeric, part.claimed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The derivative by one input."""

    place: int  # in the block
    numeric: Estimate  # (m,)
    sums: Tensor  # (K,) of it with the cotangents
    bar: Tensor  # (K,)
    claimed: Tensor  # (K,)
    wrong: bool
    right: bool  # neither where it cannot be told


def columns(asked: Asked, places: Sequence[int]) -> list[Column]:
    """Return some columns of the block, by positions in it; each costs 6 forwards or more."""
    return [_column(asked, place) for place in places]


def _column(asked: Asked, place: int) -> Column:
    sums, ground = asked.sums, asked.sums.ground
    at = sums.wrt.start + place * sums.wrt.step
    step = ground.lengths.step[at]
    direction = torch.zeros_like(ground.sampled.point)
    direction[at] = step
    found = _steep(ground, asked.cotangents, direction)
    numeric = Estimate(value=found.value / step, bar=found.bar / step)
    summed = _summed(asked.cotangents, (numeric,))
    value, bar = summed.value[:, 0], summed.bar[:, 0]
    claimed = asked.answers[:, at]
    wrong, right = _verdict(ground, claimed, value, bar)
    return Column(
        place=place,
        numeric=numeric,
        sums=value,
        bar=bar,
        claimed=claimed,
        wrong=wrong,
        right=right,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What comes back from one output."""

    place: int  # in the block
    claimed: Tensor  # (L,) along the directions
    numeric: Tensor  # (L,)
    bar: Tensor  # (L,)
    wrong: bool
    right: bool


def rows(asked: Asked, places: Sequence[int]) -> list[Row]:
    """Return some rows of the block, by positions in it; each costs a vjp."""
    return [_row(asked, place) for place in places]


def _row(asked: Asked, place: int) -> Row:
    sums = asked.sums
    at = sums.of.start + place * sums.of.step
    cotangent = torch.zeros_like(asked.cotangents[0])
    cotangent[at] = 1.0
    claimed = asked.directions @ row(sums.backward, cotangent)
    numeric = torch.stack([found.value[at] for found in asked.slopes])
    bar = torch.stack([found.bar[at] for found in asked.slopes])
    wrong, right = _verdict(sums.ground, claimed, numeric, bar)
    return Row(
        place=place,
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        wrong=wrong,
        right=right,
    )


def _verdict(ground: Ground, claimed: Tensor, numeric: Tensor, bar: Tensor) -> tuple[bool, bool]:
    """Tell whether one side is wrong, and whether it is right: neither where an error might not show."""
    rtol = relative_tolerance(Tolerances(), {primal.tensor.dtype for primal in ground.sampled.problem.primals})
    larger = torch.maximum(claimed.abs(), numeric.abs())
    apart, allowed = (claimed - numeric).abs(), BAR_FACTOR * bar + rtol * larger.max()
    within, shows = bool((apart <= allowed).all()), bool((allowed <= _SHOWS * larger).any())
    return bool((apart > allowed).any()), within and (shows or not bool(larger.any()))


def _steep(ground: Ground, cotangents: Tensor, direction: Tensor) -> Estimate:
    """Return the slopes along a direction, from closer steps where the function bends too much for far ones."""
    best: Estimate | None = None
    least = torch.inf
    for first in (FIRST, *CLOSER):
        found = slope(ground.sampled, ground.noise, direction, first)
        summed = _summed(cotangents, (found,))
        bar = float(summed.bar.sum())
        if best is None or bar < least:
            best, least = found, bar
        size = float((cotangents.square() @ found.value.nan_to_num(0.0, 0.0, 0.0).square()).sqrt().sum())
        if least <= _SHARP * size:
            break
    assert best is not None
    return best


def _summed(cotangents: Tensor, slopes: Sequence[Estimate]) -> Summed:
    used = (cotangents != 0).any(0)
    values = torch.stack([torch.where(used, found.value, 0.0) for found in slopes])
    bars = torch.stack([torch.where(used, found.bar, 0.0) for found in slopes])
    bar = (cotangents.square() @ bars.T.square()).sqrt()
    return Summed(value=cotangents @ values.T, bar=torch.where(torch.isfinite(bar), bar, torch.inf))


def _placed(values: Tensor, like: Tensor, block: Block, places: Tensor | None) -> Tensor:
    whole = torch.zeros_like(like)
    if places is None:
        whole[:, block.coordinates] = values
        return whole
    return whole.index_add_(1, places, values)


def _eps(ground: Ground) -> float:
    dtypes = {primal.tensor.dtype for primal in ground.sampled.problem.primals}
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=torch.finfo(torch.float64).eps)
