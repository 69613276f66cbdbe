"""Tensors of the function, broadcast to one number per row or per column of a Jacobian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.structure import broadcast_along
from gradverify.diagnosis.naming.variables import Axis, block_along, input_and_output_values
from gradverify.evidence import WrongBlock

_DIMENSIONS = 6  # of the output or input at most: every choice of its dimensions is tried
_TENSORS = 5  # of which differences are taken: every ordered pair of them


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTensor:
    """A tensor broadcast to one number per row or column of the Jacobian."""

    name: str  # y, x - y
    where: str  # " along dimension 1", "" if the tensor has the shape of the output or input along the axis
    axis: Axis
    values: Tensor  # (k,)

    @property
    def broadcast(self) -> Tensor:
        """The values, shaped to broadcast over the Jacobian."""
        return broadcast_along(self.axis, self.values)


def tensors_along(evidence: WrongBlock, axis: Axis) -> Iterator[AxisTensor]:
    """Yield every tensor that broadcasts along an axis; the axis' own output or input comes last."""
    block = block_along(evidence, axis)
    for name, tensor in sorted(_tensors(evidence), key=lambda each: each[0] == block.name):
        for where, values in _broadcasts(tensor, block):
            yield AxisTensor(name=name, where=where, axis=axis, values=values)


def differences(found: Sequence[AxisTensor]) -> Iterator[AxisTensor]:
    """Yield the differences of two tensors that have the full shape along the same axis."""
    for first, second in permutations([each for each in found if not each.where][:_TENSORS], 2):
        if first.axis is second.axis:
            name, values = f"{first.name} - {second.name}", first.values - second.values
            yield AxisTensor(name=name, where="", axis=first.axis, values=values)


def _tensors(evidence: WrongBlock) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and values, in float64, of the inputs, the outputs and the other tensor arguments."""
    point, value = input_and_output_values(evidence)
    for blocks, numbers in ((evidence.inputs, point), (evidence.outputs, value)):
        for block in blocks:
            yield block.name, numbers[block.coordinates].reshape(block.shape)
    for entry in evidence.backward.problem.bound:
        given = entry.value
        if isinstance(given, Tensor) and given.layout is torch.strided and not given.is_complex():
            yield entry.name, given.detach().to(device=evidence.device, dtype=torch.float64)


def _broadcasts(tensor: Tensor, block: Block) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensor broadcast to the block's shape, flat, once for every choice of dimensions that fits.

    The tensor's dimensions are matched, in order, with some of the block's; each has the block's size or size 1.
    """
    shape, size = tuple(tensor.shape), total(block.shape)
    if tensor.numel() < 2 or len(block.shape) > _DIMENSIONS or not bool(torch.isfinite(tensor).all()):
        return
    if shape == block.shape:
        yield "", tensor.reshape(-1)
        return
    for chosen in combinations(range(len(block.shape)), len(shape)):
        if all(length in (1, block.shape[at]) for at, length in zip(chosen, shape, strict=True)):
            full = [1] * len(block.shape)
            for at, length in zip(chosen, shape, strict=True):
                full[at] = length
            along = [str(at) for at, length in zip(chosen, shape, strict=True) if length > 1]
            where = f" along dimension{'s' if len(along) > 1 else ''} {' and '.join(along)}"
            yield where, tensor.reshape(full).expand(block.shape).reshape(size)
