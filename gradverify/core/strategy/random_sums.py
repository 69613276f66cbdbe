"""Random sums u·J·v over the whole Jacobian and over its blocks: finite differences against vjps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Generator, Tensor

from gradverify.core.backward.vjps import Backward, flat_vjp
from gradverify.core.decide.backward_rounding import backward_at, left_by_cancellation
from gradverify.core.decide.compare import RESOLVED, SIGNIFICANT, relative_tolerance
from gradverify.core.decide.context import MeasuredProblem, absolute_floor
from gradverify.core.decide.directional import CLOSER_STEPS, LONG_STEP, SUM_ROUNDING, directional_derivative
from gradverify.core.estimate.richardson import DEPTH
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate
from gradverify.core.forward.sampler import Sampler, magnitudes
from gradverify.core.model.coordinates import Block, zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import TINY, all_set, any_set, finite_size, largest_in_tensor, scales
from gradverify.core.tuning import ALIKE, INPUT_EPS, NEARBY_POINTS, RESULT_UNITS, SEVERAL, SMALL_PART
from gradverify.errors import EvaluationError

_ROUNDING = 1e-12  # of the root sum of squares of the terms: rounding in backward
TERM_ROUNDING = RESULT_UNITS * torch.finfo(torch.float64).eps  # of the sum of the terms' magnitudes: the same
_SHARP = 1e-8  # of a sum: with an error bar below it, no smaller steps are tried
_MOST_DIRECTIONS = 24  # directions restricted to one input, over all inputs; at least one per input


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomVectors:
    """Random cotangents with their vjps, and random directions with the slopes along them."""

    cotangents: Tensor  # (K, m)
    vjps: Tensor  # (K, n)
    directions: list[Tensor]  # each (n,); the last is weighted by `_equalized_steps`
    slopes: list[Estimate]  # of every output along each direction, by steps from `LONG_STEP` on
    finite: Tensor  # (m,) True for outputs that are finite at and around the point


@dataclass(frozen=True, slots=True, kw_only=True)
class SumDifference:
    """The difference of both sides of the sums along one direction, each (K,): finite differences minus vjps."""

    error: Tensor  # numeric - claimed
    bar: Tensor
    allowed: Tensor  # what the error bars and rounding in backward explain
    output_rounding: Tensor  # what rounding of the outputs alone explains
    size: Tensor  # root sum of squares of the terms
    slack: Tensor  # the relative tolerance, times `size`
    first_step: float  # the first step used, relative to the length scale

    @property
    def differs(self) -> bool:
        """True if the two sides differ by more than the error bars and rounding explain."""
        return any_set(~(self.error.abs() <= self.allowed) | self.error.isinf())

    @property
    def excess(self) -> float:
        """The largest error in units of what is allowed."""
        allowed = self.allowed.clamp(min=TINY)
        return float((self.error.abs() / allowed).nan_to_num(1e300).max())

    @property
    def is_within_rtol(self) -> bool:
        """True if every error is within `allowed` plus rtol."""
        return all_set(self.error.abs() <= self.allowed + self.slack)

    @property
    def rtol_allows(self) -> Tensor:
        """Rtol plus output rounding, (K,)."""
        return self.slack + self.output_rounding

    @property
    def is_close(self) -> bool:
        """True if every error is within rtol plus output rounding, whatever the bars, and that rounding is small."""
        return all_set(self.error.abs() <= self.rtol_allows) and all_set(self.output_rounding <= RESOLVED * self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSums:
    """Both sides of random sums over a block of the Jacobian, usually one output by one input, or over all of it."""

    measured: MeasuredProblem
    outputs: tuple[Block, ...]
    inputs: tuple[Block, ...]
    rtol: float
    cotangents: Tensor  # (K, m) zero for other outputs, and for those that are not finite
    vjps: Tensor  # (K, n)
    finite: Tensor  # (m,) True for outputs of the block that are finite at and around the point
    directions: list[Tensor]  # each (n,), zero for other inputs
    gaps: list[SumDifference]  # along these directions


def random_vectors(
    measured: MeasuredProblem, lengths: Tensor, outputs: slice, tangents: int, cotangents: int, generator: Generator
) -> RandomVectors:
    """Return random cotangents on some outputs and random directions; costs 6 forwards per direction, and the vjps.

    `lengths` (n,) are the step lengths of the directions: `tangents` of these and one more with `_equalized_steps`.
    There are `cotangents` with each of the two kinds of `_weights`.
    """
    directions = [random_magnitudes(lengths, generator) for _ in range(tangents)]
    slopes = [
        directional_derivative(measured.sampled, measured.noise, direction, LONG_STEP) for direction in directions
    ]
    changes = torch.stack([found.value for found in slopes])
    finite = torch.isfinite(changes).all(dim=0) & torch.isfinite(measured.sampled.value)
    kinds = [zero_outside(weight * finite, outputs) for weight in _weights(measured.sampled, changes)]
    drawn = torch.stack([random_magnitudes(weight, generator) for weight in kinds for _ in range(cotangents)])
    vjps = torch.stack([vjp_for_sums(measured, cotangent) for cotangent in drawn])
    directions.append(random_magnitudes(_equalized_steps(lengths, vjps), generator))
    slopes.append(directional_derivative(measured.sampled, measured.noise, directions[-1], LONG_STEP))
    return RandomVectors(cotangents=drawn, vjps=vjps, directions=directions, slopes=slopes, finite=finite)


def vjp_for_sums(measured: MeasuredProblem, cotangent: Tensor) -> Tensor:
    """Return cotangent·A, (n,): in float64 wherever the result in backward's own dtype differs by its rounding only.

    Summed over many entries, that rounding would hide an error of a single one. It may be as large as the tolerances of
    numbers of usual size in the same input; as what cancellation may leave of the largest there, or of what changes the
    outputs as much; and where rounding leads to another branch, as what twice that changes elsewhere in the input.
    """
    if measured.backward_in_float64 is None:
        return flat_vjp(measured.backward, cotangent)
    peak = torch.exp2(cotangent.abs().max().clamp(min=TINY).log2().floor())  # one of small outputs overflows float16
    own = peak * flat_vjp(measured.backward, cotangent / peak)
    try:
        wide = flat_vjp(measured.backward_in_float64, cotangent)
    except EvaluationError:
        return own
    sampled, off, length = measured.sampled, (own - wide).abs(), measured.lengths.step
    sizes, largest = scales(wide, sampled.inputs), largest_in_tensor(wide, sampled.inputs)
    usual = torch.maximum(sizes.own, torch.minimum(sizes.shared, largest))
    as_much = torch.maximum(largest, (finite_size(wide) * length).max() / length)
    rounding = relative_tolerance(measured.settings.tolerances, sampled.dtypes) * usual
    rounding += left_by_cancellation(sampled.backward_eps) * as_much + peak * absolute_floor(sampled, measured.settings)
    if any_set(off > rounding):
        change = _change_by_input_rounding(measured, cotangent, wide)
        rounding = torch.maximum(rounding, ALIKE * largest_in_tensor(change, sampled.inputs))
    return torch.where(off <= rounding, wide, own)


def computes_in_float64(backward: Backward) -> bool:
    """True unless a third of a cotangent shows that backward rounds to a lower precision inside; costs a vjp.

    Three times its vjp is that of the cotangent, up to the rounding of the division.
    """
    cotangent, vjp = backward.known_vjp
    apart = (3.0 * flat_vjp(backward, cotangent / 3.0) - vjp).abs()
    return all_set((apart <= SUM_ROUNDING * finite_size(vjp).max()) | ~vjp.isfinite())


def _change_by_input_rounding(measured: MeasuredProblem, cotangent: Tensor, wide: Tensor) -> Tensor:
    """Return how far a vjp in float64, `wide`, is from those at points within backward's rounding of the inputs; (n,).

    Points at which backward raises do not count.
    """
    assert measured.backward_in_float64 is not None
    generator, change = Generator().manual_seed(measured.settings.seed), torch.zeros_like(wide)
    length = INPUT_EPS * measured.sampled.backward_eps * measured.lengths.nonzero
    for _ in range(NEARBY_POINTS):
        point = measured.sampled.point + random_magnitudes(length, generator)
        with suppress(EvaluationError):
            near = flat_vjp(backward_at(measured.backward_in_float64, point), cotangent)
            change = torch.maximum(change, (near - wide).abs())
    return change


def measure_random_sums(measured: MeasuredProblem, rtol: float, generator: Generator) -> RandomSums:
    """Return random sums over the whole Jacobian, with the gap along each of 3 directions.

    Costs 6 forwards for each direction, more if the first steps are too large, and 4 vjps.
    """
    drawn = random_vectors(measured, measured.lengths.step, slice(None), SEVERAL, SEVERAL, generator)
    sums = RandomSums(
        measured=measured,
        outputs=measured.sampled.outputs,
        inputs=measured.sampled.inputs,
        rtol=rtol,
        cotangents=drawn.cotangents,
        vjps=drawn.vjps,
        finite=drawn.finite,
        directions=drawn.directions,
        gaps=[],
    )
    return replace(sums, gaps=list(map(partial(sum_difference, sums), drawn.directions, drawn.slopes)))


def sum_difference(sums: RandomSums, direction: Tensor, known: Estimate | None = None) -> SumDifference:
    """Compare finite differences with vjps along a direction; costs 6 forwards, and 6 more for each smaller step tried.

    `known` are the slopes along it from the first steps, if they have been computed.
    """
    found = sum_difference_at(sums, direction, LONG_STEP, known)
    sharp = _SHARP * found.size
    for first in CLOSER_STEPS:
        if not found.differs and all_set(found.bar <= sharp):
            break
        closer = sum_difference_at(sums, direction, first)
        # Even with wide bars: all sums do not agree by accident, and a wrong entry stays wrong at any step.
        vanishes = closer.is_close and float(closer.error.abs().max()) <= SMALL_PART * float(found.error.abs().max())
        found = closer if vanishes or float(closer.bar.sum()) < float(found.bar.sum()) else found
    return found


def sum_difference_at(
    sums: RandomSums, direction: Tensor, first: float, known: Estimate | None = None
) -> SumDifference:
    """Compare both sides along a direction by steps from `first` on; costs 6 forwards if no slopes are `known`."""
    noise = sums.measured.noise
    slopes = known or directional_derivative(sums.measured.sampled, noise, direction, first)
    summed = sums_of_slopes(sums.cotangents, (slopes,))
    terms = torch.where(direction != 0, sums.vjps * direction, 0.0)  # a claim may be nan or infinite
    error = summed.value[:, 0] - terms.sum(dim=1)
    bar = torch.where(torch.isfinite(error), summed.bar[:, 0], torch.inf)
    size = terms.square().sum(dim=1).sqrt()
    allowed = BAR_FACTOR * bar + _ROUNDING * size + TERM_ROUNDING * terms.abs().sum(dim=1)
    rounding = (sums.cotangents * noise.rounding).square().sum(dim=1).sqrt()
    rounded = rounding * (BAR_FACTOR * NOISE_FACTOR * 2.0 ** (DEPTH - 1) / first)
    slack = sums.rtol * size
    return SumDifference(
        error=error, bar=bar, allowed=allowed, output_rounding=rounded, size=size, slack=slack, first_step=first
    )


def best_slope(
    measured: MeasuredProblem, cotangents: Tensor, direction: Tensor, known: Estimate | None = None
) -> Estimate:
    """Return the slopes along a direction, from smaller steps if curvature spoils the larger ones, and noise less.

    `known` are those from the first, largest steps, if they have been computed.
    """
    sampled, noise, squares = measured.sampled, measured.noise, cotangents.square()
    best = found = known or directional_derivative(sampled, noise, direction, LONG_STEP)
    bar = float(sums_of_slopes(cotangents, (best,)).bar.sum())
    least = float((squares @ noise.level.square()).sqrt().sum()) * NOISE_FACTOR * 2.0 ** (DEPTH - 2)  # times the step
    for first in CLOSER_STEPS:
        size = float((squares @ found.value.nan_to_num(0.0, 0.0, 0.0).square()).sqrt().sum())
        if bar <= max(_SHARP * size, least / first):
            break
        found = directional_derivative(sampled, noise, direction, first)
        if (found_bar := float(sums_of_slopes(cotangents, (found,)).bar.sum())) < bar:
            best, bar = found, found_bar
    return best


def sums_of_slopes(cotangents: Tensor, slopes: Sequence[Estimate]) -> Estimate:
    """Return the slopes along L directions summed with the weights of each cotangent, (K, L).

    The signs of the weights are random, so that the errors of the outputs add up in squares.
    """
    used = (cotangents != 0).any(dim=0)  # weights are zero where an output is not finite
    values = torch.stack([torch.where(used, found.value, 0.0) for found in slopes])
    bars = torch.stack([torch.where(used, found.bar, 0.0) for found in slopes])
    bar = (cotangents.square() @ bars.T.square()).sqrt()
    return Estimate(value=cotangents @ values.T, bar=torch.where(torch.isfinite(bar), bar, torch.inf))


def differing(gaps: Sequence[SumDifference], directions: Sequence[Tensor]) -> list[tuple[Tensor, SumDifference]]:
    """Return the directions along which sums differ, with their gaps, the largest gap first."""
    off = [(direction, gap) for direction, gap in zip(directions, gaps, strict=True) if gap.differs]
    return sorted(off, key=lambda pair: pair[1].excess, reverse=True)


def split_into_blocks(whole: RandomSums) -> list[RandomSums]:
    """Return the blocks whose sums differ, the largest gap first; costs 6 forwards per input and direction.

    The whole Jacobian is returned as one block if there is only one, if no block differs by itself, or if the sums are
    within the tolerance. Empty if no sum differs, in the first and the last case.
    """
    off = differing(whole.gaps, whole.directions)
    if len(whole.outputs) == len(whole.inputs) == 1 or all(gap.is_within_rtol for gap in whole.gaps):
        return [whole] if off else []
    blocks = _blocks(whole, off[: max(1, _MOST_DIRECTIONS // len(whole.inputs))])
    found = [block for block in blocks if any(gap.differs for gap in block.gaps)]
    return sorted(found, key=lambda block: max(gap.excess for gap in block.gaps), reverse=True) or [whole]


def _weights(sampled: Sampler, changes: Tensor) -> tuple[Tensor, Tensor]:
    """Return two kinds of weights of the outputs, each (m,), from their changes along L directions, (L, m).

    The first is one over the largest change of the output's tensor, the second one over the output's own. An output
    that does not change, as of a ReLU that is off, would add its noise alone: it is weighted like the largest.
    """
    change = finite_size(changes).amax(dim=0)
    tensor_wide = magnitudes(sampled, change)
    own = torch.where(change > 0, torch.maximum(change, SIGNIFICANT * tensor_wide), tensor_wide)
    by_tensor, by_output = (torch.where(size > 0, 1 / size, 1.0) for size in (tensor_wide, own))
    return by_tensor, by_output


def _equalized_steps(lengths: Tensor, vjps: Tensor) -> Tensor:
    """Return step lengths (n,) reduced for inputs of more than median influence on the sums, down to the median."""
    influence = (vjps.abs().amax(dim=0) * lengths).nan_to_num(0.0)
    known = influence[influence > 0]
    if not known.numel():
        return lengths
    return lengths * (known.median() / influence.clamp(min=TINY)).clamp(max=1.0)


def _blocks(whole: RandomSums, off: Sequence[tuple[Tensor, SumDifference]]) -> Iterator[RandomSums]:
    """Yield every block with its gaps along the directions that are off."""
    measured, steps = whole.measured, [gap.first_step for _, gap in off]
    by_output = [whole] if len(whole.outputs) == 1 else [_restricted_to(whole, output) for output in whole.outputs]
    for wrt in whole.inputs:
        directions = [zero_outside(direction, wrt.coordinates) for direction, _ in off]
        slopes = map(partial(directional_derivative, measured.sampled, measured.noise), directions, steps)
        known = list(zip(directions, steps, slopes, strict=True))
        for block in by_output:
            gaps = [sum_difference_at(block, *each) for each in known]
            yield replace(block, inputs=(wrt,), directions=directions, gaps=gaps)


def _restricted_to(whole: RandomSums, output: Block) -> RandomSums:
    """Return the sums with their cotangents restricted to one output, without gaps."""
    cotangents = zero_outside(whole.cotangents, output.coordinates)
    vjps = torch.stack([vjp_for_sums(whole.measured, cotangent) for cotangent in cotangents])
    finite = zero_outside(whole.finite, output.coordinates)
    return replace(whole, outputs=(output,), cotangents=cotangents, vjps=vjps, finite=finite, gaps=[])
