"""Patterns of all entries of a large block: zero, a factor, another tensor's derivative, an added constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.entries import Ratio
from gradverify.diagnosis.causes.constant_factor import Summands, as_constant, as_mean, as_sign, factor_of
from gradverify.diagnosis.causes.detached import as_detached
from gradverify.diagnosis.causes.low_precision_backward import in_lower_precision
from gradverify.diagnosis.causes.missing_conjugate import as_unconjugated, conjugation_signs, is_complex
from gradverify.diagnosis.causes.missing_cotangent import ADDED, REPLACED, vjp_of_zero
from gradverify.diagnosis.causes.missing_cotangent import as_missing_cotangent as as_cotangent
from gradverify.diagnosis.causes.swapped import as_swapped_inputs, as_swapped_outputs
from gradverify.diagnosis.causes.wrong_count import LARGE_COUNT, as_count
from gradverify.diagnosis.naming.tensors import numbers_of, slice_of
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.projections.patterns import Pattern, ProjectedPart, explains, holds, sums_over_inputs
from gradverify.diagnosis.projections.sums import RandomProjections, ask, scaled
from gradverify.evidence import Diagnosis, LargeBlock

_CLOSE = 1e-3  # of the error: smaller contributions are ignored
_UNKNOWN = Summands(of_output=None, of_gradient=None)


def missing_cotangent(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a constant in the gradient: backward does not return zeros for a cotangent of zeros.

    The constant is either added to the right gradient or replaces it in some inputs, and explains the whole error.
    """
    constant = vjp_of_zero(projections.block)
    if constant is None:
        return None
    where, projected = constant != 0, projections.directions[:, projections.block.wrt.coordinates] @ constant
    numeric = projections.numeric
    if holds(projections, Estimate(value=numeric.value + projected, bar=numeric.bar)):
        return as_cotangent(projections.block, constant, ADDED, 1.0)
    outside = sums_over_inputs(projections, ~where).numeric
    if holds(projections, Estimate(value=outside.value + projected, bar=outside.bar)):
        return as_cotangent(projections.block, constant, REPLACED, 1.0)
    return None


def stays_without(projections: RandomProjections) -> bool:
    """True if a significant part of the error does not depend on the cotangent."""
    constant = vjp_of_zero(projections.block)
    if constant is None:
        return False
    projected = projections.directions[:, projections.block.wrt.coordinates] @ constant
    return bool((projected.abs() > _CLOSE * projections.error_size).any())


def detached(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose vjps that are zero for every cotangent."""
    nonzero = bool((projections.vjps[:, projections.block.wrt.coordinates] != 0).any())
    return None if nonzero else as_detached(projections.block)


def low_precision_backward(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose vjps that are all exact in a narrower dtype, with an error of the size of its rounding."""
    error = torch.linalg.vector_norm(projections.claimed - projections.numeric.value)
    size = torch.linalg.vector_norm(projections.numeric.value)
    return in_lower_precision(projections.block, projections.vjps, float(error / size))


def missing_conjugate(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose opposite signs in the derivatives between real and imaginary parts, and in no others."""
    of, wrt = projections.block.of, projections.block.wrt
    if not is_complex(of) and not is_complex(wrt):
        return None
    both = ask(
        _between(
            projections.block,
            _tensor(projections.block.outputs, of.tensor),
            _tensor(projections.block.inputs, wrt.tensor),
        )
    )
    by_row = conjugation_signs(of, both.cotangents[:, both.block.of.coordinates].shape[1]).to(projections.block.device)
    by_column = conjugation_signs(wrt, both.directions[:, both.block.wrt.coordinates].shape[1]).to(
        projections.block.device
    )
    all_flipped = holds(both, scaled(both.numeric, -1.0))  # a sign flip of all entries is the simpler explanation
    if all_flipped or not explains(both, Pattern(by_row=by_row, by_column=by_column)):
        return None
    return as_unconjugated(projections.block, 1.0)


def factor(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose one factor on every entry: a sign, a number of summands, a count, or any constant."""
    if holds(projections, scaled(projections.numeric, -1.0)):
        return as_sign(1.0)
    found = factor_of(projections.block, ratio(ProjectedPart(claimed=projections.claimed, numeric=projections.numeric)))
    if found is None or not holds(projections, scaled(projections.numeric, found.value)):
        return None
    return (
        as_mean(projections.block, found, _UNKNOWN)
        or as_count(projections.block, found, None, least=LARGE_COUNT)
        or as_constant(projections.block, found)
    )


def ratio(part: ProjectedPart) -> Ratio | None:
    """Return the median of claimed / numeric over the half of the projections with the smallest error bars.

    Returns None if no projection is finite and nonzero.
    """
    known = torch.isfinite(part.numeric.bar) & (part.numeric.value != 0) & torch.isfinite(part.claimed)
    if not bool(known.any()):
        return None
    numeric = part.numeric.value[known]
    accuracy = part.numeric.bar[known] / numeric.abs()
    best = accuracy <= accuracy.median()
    return Ratio(value=float((part.claimed[known] / numeric)[best].median()), accuracy=float(accuracy.median()))


def swapped_inputs(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose an input that gets another input's gradient, which in turn gets a different one."""
    other = _taken_from(projections.block, Axis.INPUT, projections.block.wrt.tensor)
    if other is None or _taken_from(projections.block, Axis.INPUT, other) is None:
        return None
    return as_swapped_inputs(projections.block, other, 1.0)


def swapped_outputs(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose an output whose cotangent is used for another output, whose own is used for a different one."""
    other = _taken_from(projections.block, Axis.OUTPUT, projections.block.of.tensor)
    if other is None or _taken_from(projections.block, Axis.OUTPUT, other) is None:
        return None
    return as_swapped_outputs(projections.block, other, 1.0)


def _taken_from(sums: LargeBlock, axis: Axis, tensor: int) -> int | None:
    """Return the number of the other tensor, of the same shape, whose derivative is claimed for `tensor`, or None."""
    blocks = sums.inputs if axis is Axis.INPUT else sums.outputs
    kind = {block.tensor: (block.shape, block.step) for block in blocks}
    others = [other for other in numbers_of(blocks) if other != tensor and kind[other] == kind[tensor]]
    if not others:
        return None
    if axis is Axis.INPUT:
        projections = ask(_between(sums, _all(sums.outputs), _tensor(blocks, tensor)))
        return next(
            (other for other in others if explains(projections, Pattern(columns=_coordinates(blocks, other, sums)))),
            None,
        )
    projections = ask(_between(sums, _tensor(blocks, tensor), _all(sums.inputs)))
    return next(
        (other for other in others if explains(projections, Pattern(rows=_coordinates(blocks, other, sums)))), None
    )


def _coordinates(blocks: Sequence[Block], tensor: int, sums: LargeBlock) -> Tensor:
    """Return the coordinates of the tensor with this number."""
    place = slice_of(blocks, tensor)
    return torch.arange(place.start, place.stop, device=sums.device)


def _between(sums: LargeBlock, of: Block, wrt: Block) -> LargeBlock:
    """Return the description of the block d `of` / d `wrt` of the same problem."""
    return replace(sums, of=of, wrt=wrt)


def _tensor(blocks: Sequence[Block], tensor: int) -> Block:
    """Return the tensor as one block: both parts if it is complex."""
    place, first = slice_of(blocks, tensor), next(block for block in blocks if block.tensor == tensor)
    return replace(first, start=place.start, stop=place.stop, step=1)


def _all(blocks: Sequence[Block]) -> Block:
    """Return all tensors as one block."""
    return replace(blocks[0], start=0, stop=max(block.stop for block in blocks), step=1)
