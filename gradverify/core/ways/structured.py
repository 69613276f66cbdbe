"""The comparison of Jacobians with a structure: shared moves and cotangents, believed only when verified."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function.analytic import jacobian
from gradverify.core.function.noise import at_least
from gradverify.core.judging.bench import Bench, bench
from gradverify.core.judging.columns import judge_all
from gradverify.core.judging.compare import Judged
from gradverify.core.judging.ground import Ground, Reconsider, focused, second_look
from gradverify.core.judging.replaced import replaced
from gradverify.core.judging.settled import Settled, settled
from gradverify.core.judging.tally import Comparison, Part, beside, matching, tallied
from gradverify.core.judging.ties import judge_together
from gradverify.core.numeric.moves import of_outputs
from gradverify.core.numeric.samples import Walk, of_direct
from gradverify.core.ways import dense
from gradverify.core.ways.added import gathered
from gradverify.core.ways.claims import claimed_entries
from gradverify.core.ways.elementwise import sampled_entry_by_entry, walk_of
from gradverify.core.ways.structure import Structure, entry_by_entry, find_structure
from gradverify.core.ways.verified import accusations_hold, claims_hold, differences_hold, pattern_holds

_DEAREST = 64  # moves that are made where the alternative is to probe
_REST = 1 / 8  # of the outputs may be left in doubt, to be judged apart from the others


def compare_by_structure(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    compared = _compared_entry_by_entry(ground, settings, reconsider)
    if compared is not None:
        return compared
    most = None if dense.affordable(ground) else _DEAREST
    structure = find_structure(ground.sampled, ground.lengths, settings.seed, most)
    if structure is None:
        return None
    claimed = _claims(ground, structure, settings)
    if claimed is None:
        return None
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return _compared(ground, structure, at, None, settings, reconsider)


def _compared_entry_by_entry(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by the simplest structure of all, None where it does not hold."""
    eight = sampled_entry_by_entry(ground.sampled, ground.lengths, settings.seed)
    if eight is None:
        return None
    structure = entry_by_entry(ground.sampled, eight.moves)
    claimed = _claims(ground, structure, settings)
    if claimed is None:
        return None
    found = settled(ground.sampled, eight, claimed, ground.lengths.step, settings)
    if not len(found.doubt):
        return matching(found.extremes, ground.entries, _parts(structure, claimed, found.judged))
    steps = of_direct(ground.sampled, walk_of(eight, ground.lengths), found.doubt)
    del eight  # of all that is held, the largest
    if len(found.doubt) <= _REST * len(ground.sampled.value):
        rest = _rest(ground, structure, claimed, found, steps, settings, reconsider)
        if rest is not None:
            parts = _parts(structure, claimed, _together(found, rest))
            return beside(rest, matching(found.extremes, ground.entries, parts))
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return _compared(ground, structure, at, None, settings, reconsider)


def _together(found: Settled, rest: Comparison) -> Judged | None:
    """Return the verdicts on all entries, those left in doubt as they were judged apart; None where none are kept."""
    if found.judged is None:
        return None
    every = torch.ones_like(found.judged.kinked)
    return replaced(found.judged, every, found.doubt.new_zeros(1), found.doubt, rest.parts[0].judged)


def _parts(structure: Structure, claimed: Tensor, judged: Judged | None) -> tuple[Part, ...]:
    return () if judged is None else (Part(owner=structure.moves.owner, claimed=claimed, judged=judged),)


def _rest(
    ground: Ground,
    structure: Structure,
    claimed: Tensor,
    found: Settled,
    steps: Walk,
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison | None:
    """Compare the entries left in doubt of a function that goes entry by entry, None where it does not."""
    outputs, some = found.doubt, focused(ground, found.doubt, settings)
    moves = of_outputs(structure.moves, outputs)
    noise = at_least(some.noise, found.usual * some.sampled.value.abs())
    at = bench(some.sampled, noise, some.lengths, moves, claimed[:, outputs], settings)
    largest = claimed.abs().nan_to_num_(0.0, 0.0, 0.0).max().expand(len(outputs))
    at = replace(at, allowance=replace(at.allowance, largest=largest))
    rest = replace(structure, moves=moves)
    return _compared(some, rest, at, steps, settings, reconsider, verified=found.foretold)


def _compared(
    ground: Ground,
    structure: Structure,
    at: Bench,
    walk: Walk | None,
    settings: Settings,
    reconsider: Reconsider,
    *,
    verified: bool = False,
) -> Comparison | None:
    """Compare by this structure, None where it does not hold, unless that is `verified`.

    `walk` is that of the first steps, where they have been taken.
    """
    judged = [(chosen, second_look(at, ground, chosen, part, settings)) for chosen, part in judge_all(at, walk)]
    added = gathered(structure.moves, [part for _, part in judged])
    seed = settings.seed
    if verified or (
        differences_hold(at, added, seed) and pattern_holds(at, added, structure, seed) and accusations_hold(at, added)
    ):
        return tallied(at, judge_together(at, judged, seed), settings, reconsider)
    return None


def _claims(ground: Ground, structure: Structure, settings: Settings) -> Tensor | None:
    """Return the claims of the entries that moves own, None where they are not all there is."""
    claimed = _compressed(ground, structure)
    if claimed is None or not claims_hold(ground.backward, structure.moves, claimed, settings.seed):
        return None
    return claimed


def _compressed(ground: Ground, structure: Structure) -> Tensor | None:
    """Return the claims of the entries that moves own, from shared cotangents or, where they save nothing, rows."""
    claimed = claimed_entries(ground.backward, structure)
    if claimed is not None:
        return claimed
    if ground.entries > dense.LIMIT:
        return None
    rows, owner = jacobian(ground.backward), structure.moves.owner
    return torch.where(owner >= 0, rows.T.gather(0, owner.clamp(min=0)), 0.0)
