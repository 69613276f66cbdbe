"""The comparison of functions that seem to go entry by entry: most entries by eight samples, the rest as all others."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function.analytic import asked_again, may_be_asked, row
from gradverify.core.function.noise import at_least
from gradverify.core.function.portion import FEW, portions
from gradverify.core.judging.bench import bench, size_of
from gradverify.core.judging.compare import Judged
from gradverify.core.judging.ground import Ground, Reconsider, focused
from gradverify.core.judging.replaced import with_outputs
from gradverify.core.judging.settled import Settled, by_all, settled
from gradverify.core.judging.tally import Comparison, Part, beside, matching
from gradverify.core.numeric.moves import moves_by_input, of_outputs
from gradverify.core.numeric.walk import Walk
from gradverify.core.ways.closer import from_closer_by
from gradverify.core.ways.halves import are_isolated, sampled_entry_by_entry, walk_of
from gradverify.core.ways.hypothesis import compared_under
from gradverify.core.ways.structure import Structure, entry_by_entry
from gradverify.core.ways.verified import claims_hold, each_by_its_own

_WIDE = 2.0**23  # times as large as another: the last digits that a product may be off by are 1e-7 of that
_REST = 1 / 8  # of the outputs may be left in doubt, to be judged apart from the others


def compare_entry_by_entry(ground: Ground, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by the simplest structure of all, None where it does not hold."""
    by_input = sampled_entry_by_entry(ground.sampled, ground.lengths, ground.backward.heard[0])
    if by_input is None:
        return None
    claimed = _claimed(ground, settings.seed, len(by_input))
    if claimed is None:
        return None
    lengths = ground.lengths.step.view(len(by_input), -1)
    found = by_all(
        [
            settled(ground.sampled, eight, own, length, settings)
            for eight, own, length in zip(by_input, torch.split(claimed, 1), lengths, strict=True)
        ]
    )
    many = ground.sampled.point.numel() >= FEW
    if many and found.doubt.numel() and ground.sampled.narrow():  # of stairs, eight samples say little
        return _compared(ground, entry_by_entry(ground.sampled), claimed, settings, reconsider)
    if many:
        found = from_closer_by(ground, by_input, claimed, found, settings)
    if not found.doubt.numel():
        return matching(found.extremes, ground.entries, _parts(claimed, found.judged))
    if not many:
        return None
    structure, steps = entry_by_entry(ground.sampled), None
    if not by_input[0].at_once:
        own = structure.moves.owner[:, found.doubt]
        steps = walk_of(ground.sampled, by_input, ground.lengths, own, found.doubt)
    del by_input  # of all that is held, the largest
    if found.doubt.numel() <= _REST * ground.sampled.value.numel():
        rest = _rest(ground, structure, claimed, found, steps, settings, reconsider)
        if rest is not None:
            parts = _parts(claimed, _together(found, rest))
            return beside(rest, matching(found.extremes, ground.entries, parts))
    return _compared(ground, structure, claimed, settings, reconsider)


def _compared(
    ground: Ground, structure: Structure, claimed: Tensor, settings: Settings, reconsider: Reconsider
) -> Comparison | None:
    """Compare all entries as those of any other structure, None where it does not hold."""
    at = bench(ground.sampled, ground.noise, ground.lengths, structure.moves, claimed, settings)
    return compared_under(ground, structure, at, None, settings, reconsider)


def _claimed(ground: Ground, seed: int, inputs: int) -> Tensor | None:
    """Return what backward claims of every output and the entries of its number, (inputs, n).

    None where that is not all that it claims.
    """
    backward, cotangent = ground.backward, torch.ones((), dtype=torch.float64).expand(ground.sampled.value.numel())
    claimed = asked_again(backward, cotangent)
    if claimed is not None and not _is_wide(claimed) and each_by_its_own(backward, claimed.view(inputs, -1)):
        return claimed.view(inputs, -1)
    if ground.sampled.point.numel() < FEW:
        return None  # single rows say more than sums, for as little
    if claimed is None or not may_be_asked(backward):
        claimed = row(backward, cotangent)
    claimed = claimed.view(inputs, -1)
    moves = moves_by_input(inputs, claimed.shape[1], claimed.device)
    return claimed if claims_hold(backward, moves, claimed, seed) else None


def _is_wide(claimed: Tensor) -> bool:
    """Tell whether claims are so much larger than others that these would be lost in the rounding of a sum of both."""
    ends = [torch.aminmax(claimed[part].abs()) for part in portions(claimed)]
    least, most = min(float(end.min) for end in ends), max(float(end.max) for end in ends)
    if least == 0.0:
        least = float(torch.where(claimed != 0, claimed.abs(), torch.inf).amin())
    return most > _WIDE * least


def _rest(
    ground: Ground,
    structure: Structure,
    claimed: Tensor,
    found: Settled,
    steps: Walk | None,
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison | None:
    """Compare the entries left in doubt of a function that goes entry by entry, None where it does not."""
    outputs, some = found.doubt, focused(ground, found.doubt, settings)
    moves = of_outputs(structure.moves, outputs)
    if are_isolated(some.sampled, ground.lengths, moves.owner):
        moves = replace(moves, isolated=True)
    usual = found.usual * some.sampled.value.abs()
    noise = at_least(some.noise, usual)
    at = bench(some.sampled, noise, some.lengths, moves, claimed[:, outputs], settings)
    largest = size_of(claimed).amax().expand(len(outputs))
    at = replace(at, allowance=replace(at.allowance, largest=largest))
    rest = replace(structure, moves=moves)
    return compared_under(some, rest, at, steps, settings, reconsider, verified=found.foretold)


def _together(found: Settled, rest: Comparison) -> Judged | None:
    """Return the verdicts on all entries, those left in doubt as they were judged apart; None where none are kept."""
    if found.judged is None:
        return None
    return with_outputs(found.judged, found.doubt, rest.parts[0].judged)


def _parts(claimed: Tensor, judged: Judged | None) -> tuple[Part, ...]:
    if judged is None:
        return ()
    inputs, size = claimed.shape
    return (Part(owner=moves_by_input(inputs, size, claimed.device).owner, claimed=claimed, judged=judged),)
