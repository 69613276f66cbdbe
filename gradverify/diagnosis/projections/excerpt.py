"""Excerpts of a problem whose Jacobian is too large to hold: some slices of its inputs and of one output.

The inputs of an excerpt are some entries of every input, with the others fixed at the point, and its output is part of
one output; its Jacobian is a part of the whole one. Slices are picked along dimensions of an input and the output that
correspond slice by slice: rows of a layer norm, columns of a batch norm, any entries of an elementwise function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Generator, Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.model.problem import Bound, Meter, Primal, Problem, call, fresh
from gradverify.core.strategy.sparsity import InputOutputPattern, Window, patterns_by_input
from gradverify.evidence import LargeBlock

_OUTPUTS, _INPUTS = 600, 2_000  # largest numbers of outputs and inputs of an excerpt
_ENTRIES = 32_000  # largest number of entries of its compressed Jacobian, column groups times outputs
_LEAST = 3  # slices kept, at least, of a dimension that is cut
_NUMBERS = 1 << 24  # numbers in the points and outputs of all column groups: each is one forward of the whole problem
_SAMPLES = 10  # forwards for each input coordinate: six, and those for the sample that the ladder judges
_MOST_SCALAR = 200  # largest number of column groups if the output is one number

_T = TypeVar("_T")
_Kept = tuple[Tensor, ...]  # per dimension of a tensor, the indices that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The size of an excerpt: what is left of the frame, and of every input along the dimensions cut with it.

    The frame is the output, or the input if the output is one number.
    """

    frame: Block
    scalar: bool  # True if the output is one number
    separable: bool  # True if entries cut with the frame can share column groups
    shapes: tuple[tuple[int, ...], ...]  # of the inputs, uncut
    along: tuple[tuple[int | None, ...], ...]  # per input, per dimension: the frame dimension it is cut with, or None
    sizes: tuple[int, ...]  # what is left of the frame's dimensions

    def inputs(self, sizes: Sequence[int]) -> int:
        """Return the number of input coordinates if the frame is cut to these sizes."""
        return sum(math.prod(_cut_with(*each, sizes)) for each in zip(self.shapes, self.along, strict=True))

    @property
    def moves(self) -> int:
        """Number of column groups needed, if entries cut with the frame share them."""
        return self.inputs([1] * len(self.sizes) if self.separable else self.sizes)

    def is_small(self, most: int) -> bool:
        """True if all entries of the excerpt's Jacobian can be compared, and it has at most `most` inputs."""
        inputs, outputs = self.inputs(self.sizes), 1 if self.scalar else math.prod(self.sizes)
        few = inputs <= most and outputs <= _OUTPUTS and self.moves * outputs <= _ENTRIES
        return few and (not self.scalar or self.moves <= _MOST_SCALAR)


def _cut_with(whole: Sequence[_T], along: Sequence[int | None], frame: Sequence[_T]) -> tuple[_T, ...]:
    """Return for each dimension of an input what belongs to the frame dimension it is cut with, or else its own."""
    return tuple(own if dimension is None else frame[dimension] for own, dimension in zip(whole, along, strict=True))


def excerpts(block: LargeBlock, count: int, most: int) -> Iterator[Problem]:
    """Yield `count` excerpts around a wrong block, each of other slices; every second one has them in reverse order.

    So a pattern that holds in one of them because of the positions of its entries does not hold in the next. Yields
    none if the block cannot be cut small enough. All excerpts together may take `most` forwards, even if each input
    coordinate is perturbed by itself.
    """
    cut = _cut(block, min(_INPUTS, most // (count * _SAMPLES)))
    if cut is None:
        return
    generator = Generator().manual_seed(block.settings.seed + 9)
    for number in range(count):
        kept = [_picked(block, cut.frame, dimension, size, generator) for dimension, size in enumerate(cut.sizes)]
        if number % 2:
            pairs = zip(kept, cut.frame.shape, strict=True)
            kept = [places.flip(0) if len(places) < size else places for places, size in pairs]
        yield _excerpt(block, cut, tuple(kept))


def _cut(block: LargeBlock, most: int) -> _Cut | None:
    """Return a cut that leaves at most `most` input coordinates and is small enough to compare whole, or None."""
    sampled, of = block.measured.sampled, block.of
    shapes = tuple(tuple(primal.tensor.shape) for primal in sampled.problem.primals)
    if any(each.step != 1 for each in (*block.inputs, *block.outputs)) or not all(map(math.prod, shapes)):
        return None
    scalar = math.prod(of.shape) == 1
    frame = block.wrt if scalar else of
    links = [] if scalar else _links(block)
    along = tuple(_corresponding(link, of.shape) for link in links) or tuple(
        tuple(range(len(shape))) if shape == frame.shape else (None,) * len(shape) for shape in shapes
    )
    separable = bool(links) and all(link.changed for link in links)
    cut = _Cut(frame=frame, scalar=scalar, separable=separable, shapes=shapes, along=along, sizes=frame.shape)
    while not cut.is_small(most):
        sizes = list(cut.sizes)
        longest = max(_cuttable(cut), key=sizes.__getitem__, default=None)
        if longest is None:
            return None
        sizes[longest] = max(_LEAST, sizes[longest] // 2)
        cut = replace(cut, sizes=tuple(sizes))
    return cut if cut.moves * (len(sampled.point) + len(sampled.value)) <= _NUMBERS else None


def _cuttable(cut: _Cut) -> set[int]:
    """Return the dimensions of the frame that may be cut further.

    Prefer those that cut all inputs of the frame's shape alike, so that these inputs keep the shape of the frame.
    """
    cut_dimensions = {dimension for along in cut.along for dimension in along if dimension is not None}
    candidates = {dimension for dimension in cut_dimensions if cut.sizes[dimension] > _LEAST}
    alike = [along for shape, along in zip(cut.shapes, cut.along, strict=True) if shape == cut.frame.shape]
    preferred = {each for each in candidates if all(along[each] == each for along in alike)}
    return preferred or candidates


def _links(block: LargeBlock) -> list[InputOutputPattern]:
    """Return the sparsity pattern of the output by each input."""
    measured = block.measured
    found = {
        source.start: link
        for source, reached in patterns_by_input(measured.sampled, measured.lengths, block.settings.seed)
        for link in reached
        if link.target.start == block.of.start
    }
    return [found[each.start] for each in block.inputs]


def _corresponding(link: InputOutputPattern, shape: Sequence[int]) -> tuple[int | None, ...]:
    """Return for every dimension of an input the output dimension that it corresponds to slice by slice, or None.

    An input that changed nothing when perturbed, such as that of a step function, is cut like an output of its shape.
    """
    if not link.changed and tuple(link.source.shape) == tuple(shape):
        return tuple(range(len(shape)))

    def corresponds(size: int, window: Window) -> bool:
        index = torch.arange(size)
        same = torch.equal(window.first, index) and torch.equal(window.last, index)
        return same and shape[window.dimension] == size

    return tuple(
        window.dimension if window is not None and corresponds(size, window) else None
        for size, window in zip(link.source.shape, link.windows, strict=True)
    )


def _picked(block: LargeBlock, frame: Block, dimension: int, count: int, generator: Generator) -> Tensor:
    """Return `count` slices of a dimension, in order; up to half of them are picked from those with wrong entries."""
    shape = frame.shape
    size, stride = shape[dimension], math.prod(shape[dimension + 1 :])
    if count == size:
        return torch.arange(size)
    places = block.wrong_entries.outputs if frame is block.of else block.wrong_entries.inputs
    wrong = torch.unique(places.cpu() // stride % size)
    picked = wrong[torch.randperm(len(wrong), generator=generator)][: (count + 1) // 2]
    others = torch.randperm(size, generator=generator)
    others = others[~torch.isin(others, picked)][: count - len(picked)]
    return torch.cat([picked, others]).sort().values


def _excerpt(block: LargeBlock, cut: _Cut, kept: _Kept) -> Problem:
    """Return the problem whose inputs and output are the kept slices, with all other entries fixed at the point."""
    sampled = block.measured.sampled
    problem = replace(sampled.problem, meter=Meter())  # its calls are counted by the meter of the excerpt
    name = next(name for name, each in zip(sampled.names, sampled.outputs, strict=True) if each == block.of)
    points = [primal.tensor for primal in problem.primals]
    wholes = [[torch.arange(size) for size in point.shape] for point in points]
    places = [_cut_with(whole, along, kept) for whole, along in zip(wholes, cut.along, strict=True)]
    cuts = [(cut.frame.shape, kept), *zip(cut.shapes, places, strict=True)]

    def function(*values_kept: Tensor) -> Tensor:
        whole = [
            fresh(point).index_put(_grid(place, point), values)
            for point, place, values in zip(points, places, values_kept, strict=True)
        ]
        outputs = {output.name: output.tensor for output in call(problem, whole)}
        return outputs[name] if cut.scalar else outputs[name][_grid(kept, outputs[name])]

    return replace(
        problem,
        function=function,
        finer=None,
        primals=tuple(
            Primal(name=primal.name, tensor=primal.tensor[_grid(place, primal.tensor)])
            for primal, place in zip(problem.primals, places, strict=True)
        ),
        bound=tuple(_cut_bound(entry, cuts) for entry in problem.bound),
        outputs=None,
        output=name,
        meter=sampled.problem.meter,
    )


def _grid(kept: _Kept, like: Tensor) -> tuple[Tensor, ...]:
    """Return the index tensors of the kept entries of a tensor, on its device."""
    if not kept:
        return ()
    return torch.meshgrid(*[places.to(like.device) for places in kept], indexing="ij")


def _cut_bound(entry: Bound, cuts: Sequence[tuple[tuple[int, ...], _Kept]]) -> Bound:
    """Return a bound tensor cut like the frame or the input that has its shape; other bound values as they are."""
    value = entry.value
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return entry
    kept = next((kept for shape, kept in cuts if shape == tuple(value.shape)), ())
    return replace(entry, value=value[_grid(kept, value)]) if kept else entry
