"""Variables that describe a region of coordinates: a tensor's own values, differences, other tensors' values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, flatten, total
from gradverify.core.model.tape import is_intact, record
from gradverify.evidence import WrongBlock


class Axis(Enum):
    """Dimension of a Jacobian: rows are outputs, columns are inputs."""

    OUTPUT = 0
    INPUT = 1


class VariableKind(Enum):
    """Kind of a variable, which decides the order in which its regions are tried."""

    OWN = "own"  # the values of the output or input itself
    DISTANCE = "distance"  # absolute difference from another tensor
    OTHER = "other"  # anything else: other tensors, differences, products


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A named quantity with one value per coordinate."""

    name: str
    kind: VariableKind
    values: Tensor  # (k,)


def block_along(evidence: WrongBlock, axis: Axis) -> Block:
    """Return the output or the input whose coordinates lie along this axis of the Jacobian."""
    return evidence.wrt if axis is Axis.INPUT else evidence.of


def variables(evidence: WrongBlock, axis: Axis) -> tuple[Variable, ...]:
    """Return the finite variables along an axis, the most natural first."""
    block = block_along(evidence, axis)
    point, value = input_and_output_values(evidence)
    own = (value if axis is Axis.OUTPUT else point)[block.coordinates]
    given = list(_given(evidence, block, point))
    found = [Variable(name=block.name, kind=VariableKind.OWN, values=own)]
    if axis is Axis.INPUT:
        found += [
            Variable(name=f"|{block.name} - {other}|", kind=VariableKind.DISTANCE, values=(own - their_values).abs())
            for other, their_values in given
        ]
        found += [
            Variable(name=f"{block.name} - {other}", kind=VariableKind.OTHER, values=own - their_values)
            for other, their_values in given
        ]
    found += [Variable(name=other, kind=VariableKind.OTHER, values=their_values) for other, their_values in given]
    if axis is Axis.INPUT:
        found += [
            Variable(name=f"{block.name}·{other}", kind=VariableKind.OTHER, values=own * their_values)
            for other, their_values in given
        ]
    if axis is Axis.INPUT and evidence.of.shape == block.shape:
        result = value[evidence.of.coordinates]
        found.append(Variable(name=evidence.of.name, kind=VariableKind.OTHER, values=result))
    return tuple(variable for variable in found if bool(torch.isfinite(variable.values).all()))


def scalars(evidence: WrongBlock) -> tuple[float, ...]:
    """Return the float arguments of the function and their negatives."""
    given = [entry.value for entry in evidence.backward.problem.bound if isinstance(entry.value, float)]
    return tuple(value for number in given for value in (number, -number))


def is_sorted(values: Tensor) -> bool:
    """True if the values (k,) never decrease, or never increase."""
    steps = values.diff()
    return bool((steps >= 0).all() or (steps <= 0).all())


def input_and_output_values(evidence: WrongBlock) -> tuple[Tensor, Tensor]:
    """Return the values of all inputs, and of all outputs at this point, each as one flat tensor."""
    backward, device = evidence.backward, evidence.device
    point = flatten(primal.tensor for primal in backward.problem.primals)
    tape = backward.tape if is_intact(backward.tape) else record(backward.problem)
    return point.to(device), flatten(output.tensor for output in tape.outputs).to(device)


def _given(evidence: WrongBlock, own: Block, point: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and flat values of all other inputs and tensor arguments of the shape of `own`."""
    for block in evidence.inputs:
        if block != own and block.shape == own.shape:
            yield block.name, point[block.coordinates]
    for entry in evidence.backward.problem.bound:
        value = entry.value
        if isinstance(value, Tensor) and value.shape == own.shape and not value.is_complex():
            yield entry.name, value.detach().reshape(total(own.shape)).to(device=point.device, dtype=torch.float64)


def slice_of(blocks: Sequence[Block], tensor: int) -> slice:
    """Return the slice of coordinates of the tensor with this number."""
    parts = [block for block in blocks if block.tensor == tensor]
    return slice(min(block.start for block in parts), max(block.stop for block in parts))


def name_of(blocks: Sequence[Block], tensor: int) -> str:
    """Return the name of the tensor with this number, without ".real" or ".imag"."""
    first = next(block for block in blocks if block.tensor == tensor)
    return first.name if first.step == 1 else first.name.rpartition(".")[0]


def numbers_of(blocks: Sequence[Block]) -> list[int]:
    """Return the numbers of the tensors of these blocks, in ascending order."""
    return sorted({block.tensor for block in blocks})


def whole_tensor(blocks: Sequence[Block], tensor: int) -> Block:
    """Return the tensor with this number as one block: both parts if it is complex."""
    place, first = slice_of(blocks, tensor), next(block for block in blocks if block.tensor == tensor)
    return replace(first, start=place.start, stop=place.stop, step=1)


def all_of(blocks: Sequence[Block]) -> Block:
    """Return all tensors as one block."""
    return replace(blocks[0], start=0, stop=max(block.stop for block in blocks), step=1)
