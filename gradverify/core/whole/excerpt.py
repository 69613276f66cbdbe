"""Excerpts of a problem too large to be looked at whole: some slices of its inputs and outputs, all else as it is.

An excerpt moves some entries of every input, and looks at some of one output; its Jacobian is a part of the whole one.
Slices are picked along dimensions in which an input and the output go together, slice by slice: rows of a layer norm,
columns of a batch norm, whatever entries of an elementwise function.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from gradverify.core.forward.batching import seconds
from gradverify.core.model.coordinates import Block
from gradverify.core.model.problem import Bound, Meter, Primal, Problem, call, fresh
from gradverify.core.strategy.structure import InputOutputPattern, links_by_input
from gradverify.core.whole.sums import Sums

_OUTPUTS, _INPUTS = 600, 2_000  # that an excerpt has at most
_ENTRIES = 32_000  # of its Jacobian, that are likely to be other than zero
_LEAST = 3  # slices kept of a dimension that is cut
_NUMBERS = 1 << 24  # in the inputs and outputs of all moves that an excerpt is likely to need: each is a whole forward
_SAMPLES, _SECONDS = 60, 10.0  # of each input, and for all excerpts, if it comes to the worst
_ALONE = 200  # moves where there is a single output

_Kept = tuple[Tensor, ...]  # per dimension of a tensor, the places that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """How much is left of a frame, the output or where that is one number the input, and what goes with it."""

    frame: Block
    alone: bool  # the output is one number
    apart: bool  # entries that go with the frame can be moved together
    shapes: tuple[tuple[int, ...], ...]  # of the inputs
    along: tuple[tuple[int | None, ...], ...]  # per input, per dimension: that of the frame it goes with
    sizes: tuple[int, ...]  # what is left of the frame's dimensions

    @property
    def inputs(self) -> int:
        """How many entries are left of all inputs."""
        return sum(math.prod(left) for left in self._lefts())

    @property
    def outputs(self) -> int:
        """How many entries are left of the output."""
        return 1 if self.alone else math.prod(self.sizes)

    @property
    def moves(self) -> int:
        """How many moves it takes, if what goes with the frame is moved together."""
        pairs = zip(self._lefts(), self.along, strict=True)
        return sum(
            math.prod(size for size, mine in zip(left, own, strict=True) if mine is None or not self.apart)
            for left, own in pairs
        )

    def is_small(self) -> bool:
        """Tell whether what is left can be looked at whole."""
        few = self.inputs <= _INPUTS and self.outputs <= _OUTPUTS and self.moves * self.outputs <= _ENTRIES
        return few and (not self.alone or self.moves <= _ALONE)

    def _lefts(self) -> list[tuple[int, ...]]:
        return [
            tuple(size if mine is None else self.sizes[mine] for size, mine in zip(shape, own, strict=True))
            for shape, own in zip(self.shapes, self.along, strict=True)
        ]


def excerpts(sums: Sums, count: int, most: int) -> Iterator[Problem]:
    """Yield so many excerpts around a wrong block, of other slices each, and every second one with these reversed.

    What holds in one of them by the places of its entries does not hold in the next. None where nothing can be cut, or
    they would take long: each input that is left may be moved by itself, and all of them may take `most` forwards.
    """
    cut = _cut(
        sums,
        min(_INPUTS, most // (count * _SAMPLES), int(_SECONDS / (count * _SAMPLES * seconds(sums.measured.sampled)))),
    )
    if cut is None:
        return
    generator = Generator().manual_seed(sums.seed + 9)
    for number in range(count):
        kept = [_picked(sums, cut.frame, dimension, size, generator) for dimension, size in enumerate(cut.sizes)]
        if number % 2:
            short = [size < whole for size, whole in zip(cut.sizes, cut.frame.shape, strict=True)]
            kept = [places.flip(0) if cut_off else places for places, cut_off in zip(kept, short, strict=True)]
        yield _excerpt(sums, cut, tuple(kept))


def _cut(sums: Sums, most: int) -> _Cut | None:
    """Return what is left of a block small enough to be looked at whole, with so many inputs at most, or None."""
    sampled, of = sums.measured.sampled, sums.of
    shapes = tuple(tuple(primal.tensor.shape) for primal in sampled.problem.primals)
    if any(block.step != 1 for block in (*sums.inputs, *sums.outputs)) or not all(map(math.prod, shapes)):
        return None
    alone = math.prod(of.shape) == 1
    frame = sums.wrt if alone else of
    still = sums.wrt.shape == of.shape and not bool((sums.found.numeric != 0).any())  # but for jumps: nothing to see
    reached = [] if alone or still else _links(sums)
    along = tuple(_together(link, of.shape) for link in reached) or _as_shaped(frame, shapes)
    apart = bool(reached) and all(link.moved for link in reached)
    cut = _Cut(frame=frame, alone=alone, apart=apart, shapes=shapes, along=along, sizes=frame.shape)
    while not cut.is_small() or cut.inputs > most:
        sizes = list(cut.sizes)
        longest = max(_next_to_cut(cut), key=sizes.__getitem__, default=None)
        if longest is None:
            return None
        sizes[longest] = max(_LEAST, sizes[longest] // 2)
        cut = replace(cut, sizes=tuple(sizes))
    return cut if cut.moves * (len(sampled.point) + len(sampled.value)) <= _NUMBERS else None


def _next_to_cut(cut: _Cut) -> set[int]:
    """Return the dimensions of the frame that may be cut further.

    First those in which all inputs of its shape go with it: these stay of its shape.
    """
    going_along = {dimension for own in cut.along for dimension in own if dimension is not None}
    long = {dimension for dimension in going_along if cut.sizes[dimension] > _LEAST}
    alike = [own for shape, own in zip(cut.shapes, cut.along, strict=True) if shape == cut.frame.shape]
    return {dimension for dimension in long if all(own[dimension] == dimension for own in alike)} or long


def _as_shaped(frame: Block, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int | None, ...], ...]:
    """Have all inputs of the frame's shape go with it."""
    return tuple(tuple(range(len(shape))) if shape == frame.shape else (None,) * len(shape) for shape in shapes)


def _links(sums: Sums) -> list[InputOutputPattern]:
    """Return how each input reaches the output."""
    measured = sums.measured
    found = {
        source.start: link
        for source, reached in links_by_input(measured.sampled, measured.lengths, sums.seed)
        for link in reached
        if link.target.start == sums.of.start
    }
    return [found[block.start] for block in sums.inputs]


def _together(link: InputOutputPattern, shape: Sequence[int]) -> tuple[int | None, ...]:
    """Return for every dimension of an input that of the output which it goes with, slice by slice.

    What was not seen to move anything, as steps seldom are, is cut as the output is that has its shape.
    """
    if not link.moved and tuple(link.source.shape) == tuple(shape):
        return tuple(range(len(shape)))
    found: list[int | None] = []
    for size, window in zip(link.source.shape, link.windows, strict=True):
        every = torch.arange(size)
        goes = (
            window is not None
            and shape[window.dimension] == size
            and torch.equal(window.first, every)
            and torch.equal(window.last, every)
        )
        found.append(window.dimension if window is not None and goes else None)
    return tuple(found)


def _picked(sums: Sums, frame: Block, dimension: int, count: int, generator: Generator) -> Tensor:
    """Return the slices of a dimension that are kept, in order: half of them wrong ones, as far as there are any."""
    shape = frame.shape
    size, stride = shape[dimension], math.prod(shape[dimension + 1 :])
    if count == size:
        return torch.arange(size)
    places = sums.found.outputs if frame is sums.of else sums.found.inputs
    wrong = torch.unique(places.cpu() // stride % size)
    known = wrong[torch.randperm(len(wrong), generator=generator)][: (count + 1) // 2]
    others = torch.randperm(size, generator=generator)
    others = others[~torch.isin(others, known)][: count - len(known)]
    return torch.cat([known, others]).sort().values


def _excerpt(sums: Sums, cut: _Cut, kept: _Kept) -> Problem:
    problem = replace(sums.measured.sampled.problem, meter=Meter())  # what is called here is counted by the excerpt
    name = next(name for name, block in zip(sums.measured.sampled.names, sums.outputs, strict=True) if block == sums.of)
    points = [primal.tensor for primal in problem.primals]
    places = [
        tuple(torch.arange(size) if mine is None else kept[mine] for size, mine in zip(point.shape, own, strict=True))
        for point, own in zip(points, cut.along, strict=True)
    ]

    def function(*some: Tensor) -> Tensor:
        whole = [
            fresh(point).index_put(_grid(place, point), values)
            for point, place, values in zip(points, places, some, strict=True)
        ]
        found = {output.name: output.tensor for output in call(problem, whole)}
        return found[name] if cut.alone else found[name][_grid(kept, found[name])]

    return replace(
        problem,
        function=function,
        finer=None,
        primals=tuple(
            Primal(name=primal.name, tensor=primal.tensor[_grid(place, primal.tensor)])
            for primal, place in zip(problem.primals, places, strict=True)
        ),
        bound=tuple(_cut_too(entry, cut.frame.shape, kept, points, places) for entry in problem.bound),
        outputs=None,
        output=name,
        meter=sums.measured.sampled.problem.meter,
    )


def _grid(kept: _Kept, like: Tensor) -> tuple[Tensor, ...]:
    """Return the index of all entries that are kept in every dimension."""
    if not kept:
        return ()
    return torch.meshgrid(*[places.to(like.device) for places in kept], indexing="ij")


def _cut_too(
    entry: Bound, shape: Sequence[int], kept: _Kept, points: Sequence[Tensor], places: Sequence[_Kept]
) -> Bound:
    """Cut a tensor that is bound in as the output is cut that has its shape, or the input."""
    value = entry.value
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return entry
    for other, mine in (
        (torch.Size(shape), kept),
        *((point.shape, place) for point, place in zip(points, places, strict=True)),
    ):
        if value.shape == other and mine:
            return replace(entry, value=value[_grid(mine, value)])
    return entry
