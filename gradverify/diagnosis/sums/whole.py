"""Patterns of a whole block: zero, a factor, another tensor's derivative, something that stays without a cotangent."""

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

_CLOSE = 1e-3  # of the error: what counts
_UNKNOWN = Summands(of_output=None, of_gradient=None)


def missing_cotangent(asked: Asked) -> Diagnosis | None:
    """A cotangent of zeros is answered with something else than zeros, and that is the whole error."""
    constant = answer_to_zero(asked.sums)
    if constant is None:
        return None
    where, told = constant != 0, asked.directions[:, asked.sums.wrt.coordinates] @ constant
    numeric = asked.numeric
    if holds(asked, Summed(value=numeric.value + told, bar=numeric.bar)):
        return as_cotangent(asked.sums, constant, ADDED, 1.0)
    outside = of_inputs(asked, ~where).numeric
    if holds(asked, Summed(value=outside.value + told, bar=outside.bar)):
        return as_cotangent(asked.sums, constant, REPLACED, 1.0)
    return None


def stays_without(asked: Asked) -> bool:
    """Tell whether a part of the error that counts does not depend on the cotangent."""
    constant = answer_to_zero(asked.sums)
    if constant is None:
        return False
    told = asked.directions[:, asked.sums.wrt.coordinates] @ constant
    return bool((told.abs() > _CLOSE * asked.typical).any())


def detached(asked: Asked) -> Diagnosis | None:
    """Every cotangent is answered with zeros."""
    answered = bool((asked.answers[:, asked.sums.wrt.coordinates] != 0).any())
    return None if answered else as_detached(asked.sums)


def low_precision_backward(asked: Asked) -> Diagnosis | None:
    """All answers are numbers of a narrower dtype, and the error is of the size of its rounding."""
    error = torch.linalg.vector_norm(asked.claimed - asked.numeric.value)
    size = torch.linalg.vector_norm(asked.numeric.value)
    return in_lower_precision(asked.sums, asked.answers, float(error / size))


def missing_conjugate(asked: Asked) -> Diagnosis | None:
    """Between real and imaginary parts every sign is the opposite, elsewhere none is."""
    of, wrt = asked.sums.of, asked.sums.wrt
    if not is_complex(of) and not is_complex(wrt):
        return None
    both = ask(_between(asked.sums, _tensor(asked.sums.outputs, of.tensor), _tensor(asked.sums.inputs, wrt.tensor)))
    by_row = signs(of, both.cotangents[:, both.sums.of.coordinates].shape[1]).to(asked.sums.device)
    by_column = signs(wrt, both.directions[:, both.sums.wrt.coordinates].shape[1]).to(asked.sums.device)
    opposite = holds(both, scaled(both.numeric, -1.0))  # where nothing is right, a flipped sign says as much
    if opposite or not explains(both, Pattern(by_row=by_row, by_column=by_column)):
        return None
    return as_unconjugated(asked.sums, 1.0)


def factor(asked: Asked) -> Diagnosis | None:
    """Every entry is multiplied by one number."""
    if holds(asked, scaled(asked.numeric, -1.0)):
        return as_sign(1.0)
    found = factor_of(asked.sums, ratio(Part(claimed=asked.claimed, numeric=asked.numeric)))
    if found is None or not holds(asked, scaled(asked.numeric, found.value)):
        return None
    return (
        as_mean(asked.sums, found, _UNKNOWN)
        or as_count(asked.sums, found, None, least=NO_CONSTANT)
        or as_constant(asked.sums, found)
    )


def ratio(part: Part) -> Ratio | None:
    """Return the middle of claimed / numeric over the sums that are known best, None where all are zero."""
    known = torch.isfinite(part.numeric.bar) & (part.numeric.value != 0) & torch.isfinite(part.claimed)
    if not bool(known.any()):
        return None
    numeric = part.numeric.value[known]
    accuracy = part.numeric.bar[known] / numeric.abs()
    best = accuracy <= accuracy.median()
    return Ratio(value=float((part.claimed[known] / numeric)[best].median()), accuracy=float(accuracy.median()))


def swapped_inputs(asked: Asked) -> Diagnosis | None:
    """This input is given another's gradient, which in turn is given yet another's."""
    other = _taken_from(asked.sums, Axis.INPUT, asked.sums.wrt.tensor)
    if other is None or _taken_from(asked.sums, Axis.INPUT, other) is None:
        return None
    return inputs_from(asked.sums, other, 1.0)


def swapped_outputs(asked: Asked) -> Diagnosis | None:
    """This output's cotangent is used as another's, whose own is used as yet another's."""
    other = _taken_from(asked.sums, Axis.OUTPUT, asked.sums.of.tensor)
    if other is None or _taken_from(asked.sums, Axis.OUTPUT, other) is None:
        return None
    return outputs_from(asked.sums, other, 1.0)


def _taken_from(sums: Sums, axis: Axis, mine: int) -> int | None:
    """Return the tensor whose derivative is claimed for mine."""
    blocks = sums.inputs if axis is Axis.INPUT else sums.outputs
    kind = {block.tensor: (block.shape, block.step) for block in blocks}
    mates = [at for at in numbers_of(blocks) if at != mine and kind[at] == kind[mine]]
    if not mates:
        return None
    if axis is Axis.INPUT:
        asked = ask(_between(sums, _all(sums.outputs), _tensor(blocks, mine)))
        return next((at for at in mates if explains(asked, Pattern(columns=_coordinates(blocks, at, sums)))), None)
    asked = ask(_between(sums, _tensor(blocks, mine), _all(sums.inputs)))
    return next((at for at in mates if explains(asked, Pattern(rows=_coordinates(blocks, at, sums)))), None)


def _coordinates(blocks: Sequence[Block], tensor: int, sums: Sums) -> Tensor:
    place = places_of(blocks, tensor)
    return torch.arange(place.start, place.stop, device=sums.device)


def _between(sums: Sums, of: Block, wrt: Block) -> Sums:
    return replace(sums, of=of, wrt=wrt)


def _tensor(blocks: Sequence[Block], tensor: int) -> Block:
    """Return both parts of a complex tensor, or a real one, as one block."""
    place, own = places_of(blocks, tensor), next(block for block in blocks if block.tensor == tensor)
    return replace(own, start=place.start, stop=place.stop, step=1)


def _all(blocks: Sequence[Block]) -> Block:
    return replace(blocks[0], start=0, stop=max(block.stop for block in blocks), step=1)
