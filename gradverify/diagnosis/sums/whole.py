"""Patterns of all entries of a large block: zero, a factor, another tensor's derivative, an added constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.patterns import Part, Pattern, explains, holds, of_inputs
from gradverify.core.whole.sums import Asked, Summed, Sums, ask, scaled
from gradverify.diagnosis.block.seen import Ratio
from gradverify.diagnosis.causes.conjugate import as_unconjugated, is_complex, signs
from gradverify.diagnosis.causes.cotangent import ADDED, REPLACED, answer_to_zero
from gradverify.diagnosis.causes.cotangent import as_constant as as_cotangent
from gradverify.diagnosis.causes.count import NO_CONSTANT, as_count
from gradverify.diagnosis.causes.detached import as_detached
from gradverify.diagnosis.causes.factor import Summands, as_constant, as_mean, as_sign, factor_of
from gradverify.diagnosis.causes.rounded import in_lower_precision
from gradverify.diagnosis.causes.swapped import inputs_from, outputs_from
from gradverify.diagnosis.naming.tensors import numbers_of, places_of
from gradverify.diagnosis.naming.variables import Axis

_CLOSE = 1e-3  # of the error: smaller contributions are ignored
_UNKNOWN = Summands(of_output=None, of_gradient=None)


def missing_cotangent(projections: Asked) -> Diagnosis | None:
    """Diagnose a constant in the gradient: backward does not return zeros for a cotangent of zeros.

    The constant is either added to the right gradient or replaces it in some inputs, and explains the whole error.
    """
    constant = answer_to_zero(projections.sums)
    if constant is None:
        return None
    where, projected = constant != 0, projections.directions[:, projections.sums.wrt.coordinates] @ constant
    numeric = projections.numeric
    if holds(projections, Summed(value=numeric.value + projected, bar=numeric.bar)):
        return as_cotangent(projections.sums, constant, ADDED, 1.0)
    outside = of_inputs(projections, ~where).numeric
    if holds(projections, Summed(value=outside.value + projected, bar=outside.bar)):
        return as_cotangent(projections.sums, constant, REPLACED, 1.0)
    return None


def stays_without(projections: Asked) -> bool:
    """True if a significant part of the error does not depend on the cotangent."""
    constant = answer_to_zero(projections.sums)
    if constant is None:
        return False
    projected = projections.directions[:, projections.sums.wrt.coordinates] @ constant
    return bool((projected.abs() > _CLOSE * projections.typical).any())


def detached(projections: Asked) -> Diagnosis | None:
    """Diagnose vjps that are zero for every cotangent."""
    nonzero = bool((projections.answers[:, projections.sums.wrt.coordinates] != 0).any())
    return None if nonzero else as_detached(projections.sums)


def low_precision_backward(projections: Asked) -> Diagnosis | None:
    """Diagnose vjps that are all exact in a narrower dtype, with an error of the size of its rounding."""
    error = torch.linalg.vector_norm(projections.claimed - projections.numeric.value)
    size = torch.linalg.vector_norm(projections.numeric.value)
    return in_lower_precision(projections.sums, projections.answers, float(error / size))


def missing_conjugate(projections: Asked) -> Diagnosis | None:
    """Diagnose opposite signs in the derivatives between real and imaginary parts, and in no others."""
    of, wrt = projections.sums.of, projections.sums.wrt
    if not is_complex(of) and not is_complex(wrt):
        return None
    both = ask(
        _between(
            projections.sums, _tensor(projections.sums.outputs, of.tensor), _tensor(projections.sums.inputs, wrt.tensor)
        )
    )
    by_row = signs(of, both.cotangents[:, both.sums.of.coordinates].shape[1]).to(projections.sums.device)
    by_column = signs(wrt, both.directions[:, both.sums.wrt.coordinates].shape[1]).to(projections.sums.device)
    all_flipped = holds(both, scaled(both.numeric, -1.0))  # a sign flip of all entries is the simpler explanation
    if all_flipped or not explains(both, Pattern(by_row=by_row, by_column=by_column)):
        return None
    return as_unconjugated(projections.sums, 1.0)


def factor(projections: Asked) -> Diagnosis | None:
    """Diagnose one factor on every entry: a sign, a number of summands, a count, or any constant."""
    if holds(projections, scaled(projections.numeric, -1.0)):
        return as_sign(1.0)
    found = factor_of(projections.sums, ratio(Part(claimed=projections.claimed, numeric=projections.numeric)))
    if found is None or not holds(projections, scaled(projections.numeric, found.value)):
        return None
    return (
        as_mean(projections.sums, found, _UNKNOWN)
        or as_count(projections.sums, found, None, least=NO_CONSTANT)
        or as_constant(projections.sums, found)
    )


def ratio(part: Part) -> Ratio | None:
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


def swapped_inputs(projections: Asked) -> Diagnosis | None:
    """Diagnose an input that gets another input's gradient, which in turn gets a different one."""
    other = _taken_from(projections.sums, Axis.INPUT, projections.sums.wrt.tensor)
    if other is None or _taken_from(projections.sums, Axis.INPUT, other) is None:
        return None
    return inputs_from(projections.sums, other, 1.0)


def swapped_outputs(projections: Asked) -> Diagnosis | None:
    """Diagnose an output whose cotangent is used for another output, whose own is used for a different one."""
    other = _taken_from(projections.sums, Axis.OUTPUT, projections.sums.of.tensor)
    if other is None or _taken_from(projections.sums, Axis.OUTPUT, other) is None:
        return None
    return outputs_from(projections.sums, other, 1.0)


def _taken_from(sums: Sums, axis: Axis, tensor: int) -> int | None:
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


def _coordinates(blocks: Sequence[Block], tensor: int, sums: Sums) -> Tensor:
    """Return the coordinates of the tensor with this number."""
    place = places_of(blocks, tensor)
    return torch.arange(place.start, place.stop, device=sums.device)


def _between(sums: Sums, of: Block, wrt: Block) -> Sums:
    """Return the description of the block d `of` / d `wrt` of the same problem."""
    return replace(sums, of=of, wrt=wrt)


def _tensor(blocks: Sequence[Block], tensor: int) -> Block:
    """Return the tensor as one block: both parts if it is complex."""
    place, first = places_of(blocks, tensor), next(block for block in blocks if block.tensor == tensor)
    return replace(first, start=place.start, stop=place.stop, step=1)


def _all(blocks: Sequence[Block]) -> Block:
    """Return all tensors as one block."""
    return replace(blocks[0], start=0, stop=max(block.stop for block in blocks), step=1)
