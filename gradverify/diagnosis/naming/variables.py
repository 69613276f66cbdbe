"""Variables that describe a region of coordinates: a tensor's own values, differences, other tensors' values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import combinations, permutations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, flatten, total
from gradverify.core.model.tape import is_intact, record
from gradverify.diagnosis.naming.wording import dimensions_text
from gradverify.evidence import WrongBlock

DIMENSIONS = 6  # of a tensor at most: every choice of them is tried
TENSORS = 5  # of which differences and quotients are taken: every ordered pair of them


class Axis(Enum):
    """Dimension of a Jacobian: rows are outputs, columns are inputs."""

    OUTPUT = 0
    INPUT = 1

    @property
    def across(self) -> int:
        """The other dimension."""
        return 1 - self.value

    @property
    def noun(self) -> str:
        """What the coordinates along the axis are called."""
        return "elements" if self is Axis.INPUT else "outputs"


class VariableKind(Enum):
    """Kind of a variable, which decides the order in which its regions are tried."""

    OWN = "own"  # the values of the output or input itself
    DISTANCE = "distance"  # absolute difference from another tensor
    OTHER = "other"  # anything else: other tensors, differences, products


def block_along(evidence: WrongBlock, axis: Axis) -> Block:
    """Return the output or the input whose coordinates lie along this axis of the Jacobian."""
    return evidence.wrt if axis is Axis.INPUT else evidence.of


def broadcast_along(axis: Axis, coordinates: Tensor) -> Tensor:
    """Return values per coordinate (k,), shaped to broadcast over a Jacobian along this axis."""
    return coordinates.unsqueeze(0) if axis is Axis.INPUT else coordinates.unsqueeze(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A named quantity with one value per row or column of the Jacobian."""

    name: str  # y, x - y
    axis: Axis
    values: Tensor  # (k,)
    kind: VariableKind = VariableKind.OTHER
    where: str = ""  # " along dimension 1" of the output or input along the axis, if the tensor has another shape

    @property
    def broadcast(self) -> Tensor:
        """The values, shaped to broadcast over the Jacobian."""
        return broadcast_along(self.axis, self.values)


def tensors_along(evidence: WrongBlock, axis: Axis) -> Iterator[Variable]:
    """Yield every tensor that broadcasts along an axis; the axis' own output or input comes last."""
    block = block_along(evidence, axis)
    for name, tensor in sorted(named_tensors(evidence), key=lambda each: each[0] == block.name):
        for where, values in _broadcasts(tensor, block):
            yield Variable(name=name, axis=axis, values=values, where=where)


def differences(found: Sequence[Variable]) -> Iterator[Variable]:
    """Yield the differences of two tensors that have the full shape along the same axis."""
    for first, second in permutations([each for each in found if not each.where][:TENSORS], 2):
        if first.axis is second.axis:
            name, values = f"{first.name} - {second.name}", first.values - second.values
            yield Variable(name=name, axis=first.axis, values=values)


def named_tensors(evidence: WrongBlock) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values, in float64, of the inputs, the outputs and the other tensor arguments."""
    point, value = input_and_output_values(evidence)
    for blocks, numbers in ((evidence.inputs, point), (evidence.outputs, value)):
        for block in blocks:
            yield block.name, numbers[block.coordinates].reshape(block.shape)
    for entry in evidence.backward.problem.bound:
        given = entry.value
        if isinstance(given, Tensor) and _is_real_and_dense(given):
            yield entry.name, given.detach().to(device=evidence.device, dtype=torch.float64)


def _is_real_and_dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_complex() and not tensor.is_quantized


def _broadcasts(tensor: Tensor, block: Block) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensor broadcast to the block's shape, flat, once for every choice of dimensions that fits.

    The tensor's dimensions are matched, in order, with some of the block's; each has the block's size or size 1.
    """
    shape, size = tuple(tensor.shape), total(block.shape)
    if tensor.numel() < 2 or len(block.shape) > DIMENSIONS or not bool(torch.isfinite(tensor).all()):
        return
    if shape == block.shape:
        yield "", tensor.reshape(-1)
        return
    for chosen in combinations(range(len(block.shape)), len(shape)):
        sizes = dict(zip(chosen, shape, strict=True))
        if all(length in (1, block.shape[at]) for at, length in sizes.items()):
            full = [sizes.get(at, 1) for at in range(len(block.shape))]
            along = dimensions_text(at for at, length in sizes.items() if length > 1)
            yield f" along {along}", tensor.reshape(full).expand(block.shape).reshape(size)


def variables(evidence: WrongBlock, axis: Axis) -> tuple[Variable, ...]:
    """Return the finite variables along an axis, the most natural first."""
    block = block_along(evidence, axis)
    point, value = input_and_output_values(evidence)
    own = (value if axis is Axis.OUTPUT else point)[block.coordinates]
    names = {block.name, *(output.name for output in evidence.outputs)}
    given = [each for each in tensors_along(evidence, axis) if not each.where and each.name not in names]
    found = [(block.name, VariableKind.OWN, own)]
    beside = given if axis is Axis.INPUT else []  # differences and products are of an input only
    found += [(f"|{block.name} - {each.name}|", VariableKind.DISTANCE, (own - each.values).abs()) for each in beside]
    found += [(f"{block.name} - {each.name}", VariableKind.OTHER, own - each.values) for each in beside]
    found += [(each.name, VariableKind.OTHER, each.values) for each in given]
    found += [(f"{block.name}·{each.name}", VariableKind.OTHER, own * each.values) for each in beside]
    if axis is Axis.INPUT and evidence.of.shape == block.shape:
        found.append((evidence.of.name, VariableKind.OTHER, value[evidence.of.coordinates]))
    finite = (each for each in found if bool(torch.isfinite(each[2]).all()))
    return tuple(Variable(name=name, axis=axis, kind=kind, values=values) for name, kind, values in finite)


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


def whole_tensor(blocks: Sequence[Block], tensor: int) -> Block:
    """Return the tensor with this number as one block: both parts, under a common name, if it is complex."""
    parts = [block for block in blocks if block.tensor == tensor]
    name = parts[0].name if parts[0].step == 1 else parts[0].name.rpartition(".")[0]
    return replace(parts[0], name=name, start=min(part.start for part in parts), stop=parts[-1].stop, step=1)


def all_of(blocks: Sequence[Block]) -> Block:
    """Return all tensors as one block."""
    return replace(blocks[0], start=0, stop=max(block.stop for block in blocks), step=1)
