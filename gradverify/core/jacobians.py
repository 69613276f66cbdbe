"""The pair of Jacobians, claimed and measured, compared in every entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.added import gathered
from gradverify.core.analytic import Reverse, jacobian, reverse
from gradverify.core.columns import Bench, bench, judge_all
from gradverify.core.compare import Code, Judged
from gradverify.core.coordinates import Block
from gradverify.core.evidence import Evidence, Whole
from gradverify.core.moves import single_moves
from gradverify.core.noise import Noise, measure
from gradverify.core.oblique import excuse_oblique
from gradverify.core.sampler import Sampler
from gradverify.core.scale import Scales, scales
from gradverify.core.spread import excuse
from gradverify.core.steady import Steady
from gradverify.core.structure import Structure, claimed_entries, find_structure
from gradverify.core.tally import Comparison, Tally, measured
from gradverify.core.verified import accusations_hold, claims_hold, differences_hold, pattern_holds
from gradverify.errors import GradverifyError
from gradverify.result import Method

DENSE_LIMIT = 50_000_000  # entries of a Jacobian that are written down


class TooLargeError(GradverifyError):
    """The Jacobian has more entries than are written down."""

    def __init__(self, entries: int) -> None:
        self.entries = entries
        super().__init__(f"the Jacobian has {entries:,} entries; at most {DENSE_LIMIT:,} are compared one by one")


Reconsider = Callable[[Bench, Tensor, Judged], Judged]  # a second look at the verdicts on some moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Investigation:
    """A comparison, and what it was made from."""

    comparison: Comparison
    sampled: Sampler
    backward: Reverse
    method: Method


def investigate(steady: Steady, settings: Settings, reconsider: Reconsider) -> Investigation:
    """Compare every entry of the Jacobian; raises EvaluationError and TooLargeError.

    Where the Jacobian has a structure that stands every test, shared moves and cotangents do it; else one move per
    input coordinate and one vjp per output coordinate.
    """
    ground = _ground(steady, settings)
    structure = find_structure(ground.sampled, ground.lengths, settings.seed)
    comparison = None if structure is None else _structured(ground, structure, settings, reconsider)
    method = Method.DENSE if comparison is None else Method.STRUCTURED
    if comparison is None:
        comparison = _dense(ground, settings, reconsider)
    return Investigation(comparison=comparison, sampled=ground.sampled, backward=ground.backward, method=method)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    sampled: Sampler
    backward: Reverse
    lengths: Scales
    noise: Noise


def _ground(steady: Steady, settings: Settings) -> _Ground:
    sampled = steady.sampled
    backward = reverse(steady.problem, steady.tape, settings.seed)
    lengths = scales(sampled)
    noise = measure(sampled, lengths, settings.seed)
    return _Ground(sampled=sampled, backward=backward, lengths=lengths, noise=noise)


def _structured(ground: _Ground, structure: Structure, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where the structure does not hold."""
    claimed = _compressed(ground, structure)
    if claimed is None or not claims_hold(ground.backward, structure.moves, claimed, settings.seed):
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    judged = [(chosen, _second_look(at, ground, chosen, part, settings)) for chosen, part in judge_all(at)]
    added = gathered(structure.moves, [part for _, part in judged])
    seed = settings.seed
    if not (
        differences_hold(at, added, seed) and pattern_holds(at, added, structure, seed) and accusations_hold(at, added)
    ):
        return None
    tally = Tally(at=at, keep=settings.max_elements)
    for chosen, part in judged:
        tally.add(chosen, reconsider(at, chosen, part))
    return tally.comparison()


def _compressed(ground: _Ground, structure: Structure) -> Tensor | None:
    """Return the claims of the entries that moves own, from shared cotangents or, where they save nothing, rows."""
    claimed = claimed_entries(ground.backward, structure)
    if claimed is not None:
        return claimed
    if _entries(ground) > DENSE_LIMIT:
        return None
    rows, owner = jacobian(ground.backward), structure.moves.owner
    return torch.where(owner >= 0, rows.T.gather(0, owner.clamp(min=0)), 0.0)


def _dense(ground: _Ground, settings: Settings, reconsider: Reconsider) -> Comparison:
    if _entries(ground) > DENSE_LIMIT:
        raise TooLargeError(_entries(ground))
    sampled = ground.sampled
    moves = single_moves(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(ground.backward).T.contiguous()
    at = bench(sampled, ground.noise, ground.lengths, moves, claimed, settings)
    tally = Tally(at=at, keep=settings.max_elements)
    for chosen, judged in judge_all(at):
        tally.add(chosen, reconsider(at, chosen, _second_look(at, ground, chosen, judged, settings)))
    return tally.comparison()


def _second_look(at: Bench, ground: _Ground, chosen: Tensor, judged: Judged, settings: Settings) -> Judged:
    """Look at accusations again before they are raised."""
    judged = excuse(at, ground.backward, chosen, judged)
    return excuse_oblique(at, chosen, judged, settings.seed)


def _entries(ground: _Ground) -> int:
    return ground.sampled.point.numel() * ground.sampled.value.numel()


def whole(found: Investigation) -> Whole | None:
    """Return all entries of the two Jacobians, None where they were too many to keep."""
    sampled = found.sampled
    known = measured(found.comparison, sampled.point.numel(), sampled.value.numel())
    if known is None:
        return None
    return Whole(
        outputs=sampled.outputs,
        inputs=sampled.inputs,
        claimed=known.claimed.T,
        numeric=known.numeric.T,
        bar=known.bar.T,
        wrong=(known.code == Code.MISMATCH).T,
    )


def evidence(found: Investigation, everything: Whole, of: Block, wrt: Block) -> Evidence:
    """Return all there is to know of one block."""
    place = (of.coordinates, wrt.coordinates)
    return Evidence(
        of=of,
        wrt=wrt,
        claimed=everything.claimed[place],
        numeric=everything.numeric[place],
        bar=everything.bar[place],
        wrong=everything.wrong[place],
        backward=found.backward,
        whole=everything,
    )


def as_judged(at: Bench, chosen: Tensor, judged: Judged) -> Judged:
    """Leave the verdicts as they are: the Reconsider of order 1."""
    del at, chosen
    return judged
