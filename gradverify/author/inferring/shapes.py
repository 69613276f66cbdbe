"""Shapes that a tensor may have where the largest tensor of a function has the shape `base`. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradverify.author.inferring.roles import Kind
from gradverify.author.inferring.sizes import Shape

Costly = tuple[int, Shape]


def shapes_of(kind: Kind, base: Shape) -> list[Costly]:
    """Return the shapes of a tensor that is differentiated, the likeliest first, each with its cost."""
    shapes = {Kind.WEIGHT: _weights, Kind.BIAS: _biases}.get(kind, _others)(base)
    cheapest: dict[Shape, int] = {}
    for cost, shape in shapes:
        cheapest[shape] = min(cost, cheapest.get(shape, cost))
    return sorted(((cost, shape) for shape, cost in cheapest.items()), key=lambda each: each[0])


def index_shapes(base: Shape, sizes: Sequence[int]) -> list[tuple[int, Any]]:
    """Return tensors of indices into a tensor of this shape."""
    first, last = base[:1] or (1,), base[-1:] or (1,)
    shapes: list[tuple[int, Shape, int]] = [(0, ("m",), sizes[0]), (1, first, sizes[0])]
    if len(base) > 1:
        shapes += [(1, base[:-1], sizes[-1]), (1, base, min(sizes)), (2, last, sizes[-1]), (2, base[1:2], sizes[1])]
    shapes += [(2, (2, "m"), sizes[0]), (3, (), sizes[0])]
    drawn = [(cost, {"shape": shape, "integers": [0, high]}) for cost, shape, high in shapes]
    distinct = (1, {"shape": first, "permutation": True})
    return [*drawn[:2], distinct, *drawn[2:], (1, {"values": [0, 1, sizes[0]]})]  # the last are offsets of ragged rows


def label_shapes(base: Shape, sizes: Sequence[int]) -> list[tuple[int, Any]]:
    """Return tensors of labels for a tensor of this shape: one per row, one per position, or numbers."""
    labels: list[tuple[int, Any]] = [(0, {"shape": base[:-1], "integers": [0, sizes[-1]]})]
    if len(base) > 2:
        labels.append((1, {"shape": (base[0], *base[2:]), "integers": [0, sizes[1]]}))
    return [*labels, (1, {"shape": base}), (2, {"shape": base, "bernoulli": 0.5}), (2, {"shape": base[:1]})]


def mask_shapes(base: Shape) -> list[tuple[int, Any]]:
    """Return masks for a tensor of this shape."""
    shapes = dict.fromkeys((base, base[:-1], base[-1:], (*base[-2:-1], *base[-2:-1]), base[:1]))
    return [(number, {"shape": shape, "bernoulli": 0.5, "dtype": "bool"}) for number, shape in enumerate(shapes)]


def _others(base: Shape) -> Iterator[Costly]:
    last = base[-1:]
    yield from ((0, base), (1, last))
    if len(base) > 1:
        yield from ((2, (*last, "m")), (2, base[:-1]), (2, (*base[:-1], 1)), (2, base[:1]), (3, ("m", *last)))
        yield from ((2, (*base[:-2], *last, "m")), (3, (*base[:-2], "m", *last)), (3, (*last, *last)))
    if len(base) > 2:
        yield from ((3, base[1:2]), (3, base[1:]))
    yield from ((2, ()), (2, (1,)), (3, ("m",)))


def _weights(base: Shape) -> Iterator[Costly]:
    last = base[-1:]
    yield (0, last)
    if len(base) > 1:
        yield from ((1, (*last, "m")), (1, ("m", *last)), (2, (*last, *last)))
    if len(base) > 2:
        yield from (
            (1, base[1:2]),
            (1, ("m", base[1], *(3 for _ in base[2:]))),
            (2, ("m", base[1], *(1 for _ in base[2:]))),
            (2, base[1:]),
        )
    yield from ((1, base), (2, ()), (2, (1,)), (3, base[:1]))


def _biases(base: Shape) -> Iterator[Costly]:
    yield from ((0, base[-1:]), (1, ("m",)), (1, base))
    if len(base) > 2:
        yield (1, base[1:2])
    yield from ((2, ()), (2, (1,)))
