"""The comparison of functions that seem to go entry by entry: most entries by eight samples, the rest as all others."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function.noise import at_least
from gradverify.core.judging.bench import bench
from gradverify.core.judging.compare import Judged
from gradverify.core.judging.ground import Ground, Reconsider, focused
from gradverify.core.judging.replaced import replaced
from gradverify.core.judging.settled import Settled, settled
from gradverify.core.judging.tally import Comparison, Part, beside, matching
from gradverify.core.numeric.moves import of_outputs
from gradverify.core.numeric.walk import Walk, of_direct
from gradverify.core.ways.halves import sampled_entry_by_entry, walk_of
from gradverify.core.ways.hypothesis import claims_under, compared_under
from gradverify.core.ways.structure import Structure, entry_by_entry

_REST = 1 / 8  # of the outputs may be left in doubt, to be judged apart from the others


def compare_entry_by_entry(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by the simplest structure of all, None where it does not hold."""
    eight = sampled_entry_by_entry(ground.sampled, ground.lengths, settings.seed)
    if eight is None:
        return None
    structure = entry_by_entry(ground.sampled, eight.moves)
    claimed = claims_under(ground, structure, settings)
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
    return compared_under(ground, structure, at, None, settings, reconsider)


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
    return compared_under(some, rest, at, steps, settings, reconsider, verified=found.foretold)


def _together(found: Settled, rest: Comparison) -> Judged | None:
    """Return the verdicts on all entries, those left in doubt as they were judged apart; None where none are kept."""
    if found.judged is None:
        return None
    every = torch.ones_like(found.judged.kinked)
    return replaced(found.judged, every, found.doubt.new_zeros(1), found.doubt, rest.parts[0].judged)


def _parts(structure: Structure, claimed: Tensor, judged: Judged | None) -> tuple[Part, ...]:
    return () if judged is None else (Part(owner=structure.moves.owner, claimed=claimed, judged=judged),)
