"""A part of a problem small enough to be looked at whole: some slices of one input, and the outputs they belong to.

A pattern in the error of a large Jacobian is looked for in such a part, which is a problem like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.core.coordinates import Block, total
from gradverify.core.problem import Bound, Meter, Problem, call
from gradverify.core.sampler import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Slab:
    """Slices of the first dimension of an input and of an output."""

    problem: Problem  # of these slices alone; what else there is is bound in
    text: str  # x[0:30]


def slab_of(
    sampled: Sampler, of: Block, wrt: Block, outputs: Sequence[int], inputs: Sequence[int], most: int
) -> Slab | None:
    """Return a part of the block with at most so many entries, None where it cannot be cut into slices.

    `outputs` and `inputs` are positions of wrong entries in their blocks, the worst first. The slices are the first
    ones, if a wrong entry lies in them, else those around the worst.
    """
    problem = sampled.problem
    if of.step > 1 or wrt.step > 1 or not of.shape or not wrt.shape or any(p.project for p in problem.primals):
        return None
    rows, columns = total(of.shape) // max(1, of.shape[0]), total(wrt.shape) // max(1, wrt.shape[0])
    share = of.shape[0] / wrt.shape[0]  # slices of the output for each of the input
    height = int((most / max(1.0, rows * columns * share)) ** 0.5)
    if height < 1 or height >= wrt.shape[0]:
        return None
    found = [(out // rows, into // columns) for out, into in zip(outputs, inputs, strict=True)]
    first = _first(found, height, share)
    taken = slice(first, min(first + height, wrt.shape[0]))
    given = slice(int(first * share), max(int(first * share) + 1, min(int(taken.stop * share), of.shape[0])))
    return Slab(problem=_restricted(problem, of, wrt, given, taken), text=f"{wrt.name}[{taken.start}:{taken.stop}]")


def _first(found: Sequence[tuple[int, int]], height: int, share: float) -> int:
    for first in (0, max(0, found[0][1] - height // 2)):
        inside = slice(first, first + height)
        if any(inside.start <= into < inside.stop and int(first * share) <= out for out, into in found):
            return first
    return 0


def _restricted(problem: Problem, of: Block, wrt: Block, given: slice, taken: slice) -> Problem:
    """Take the same slices of every input of that shape, so that what is said of one can be held against another."""
    mates = [number for number, primal in enumerate(problem.primals) if _alike(primal.tensor, wrt.shape)]
    whole = [primal.tensor for primal in problem.primals]

    def function(*parts: Tensor) -> Any:
        tensors = [tensor.clone() for tensor in whole]
        for number, part in zip(mates, parts, strict=True):
            tensors[number] = torch.cat([whole[number][: taken.start], part, whole[number][taken.stop :]])
        outputs = {output.name: output.tensor for output in call(problem, tensors)}
        return outputs[of.name][given]

    others = [primal for number, primal in enumerate(problem.primals) if number not in mates]
    beside = [Bound(name=primal.name, value=primal.tensor) for primal in others]
    return replace(
        problem,
        function=function,
        primals=tuple(
            replace(problem.primals[number], tensor=whole[number][taken].clone(), project=None) for number in mates
        ),
        bound=tuple(_cut(bound, wrt.shape, taken) for bound in (*problem.bound, *beside)),
        outputs=None,
        output=of.name,
        meter=Meter(),  # the calls are those of the problem itself
    )


def _alike(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    return tuple(tensor.shape) == shape and not tensor.is_complex()


def _cut(bound: Bound, shape: tuple[int, ...], taken: slice) -> Bound:
    """Take the same slices of a tensor of the same shape."""
    if isinstance(bound.value, Tensor) and _alike(bound.value, shape):
        return replace(bound, value=bound.value[taken].detach())
    return bound
