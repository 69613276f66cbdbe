"""Values of floating tensors: numbers the code compares with, zeros, ties, other scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from gradverify.exploration.change import Base, Change, edit, edits, floating_paths, tensors
from gradverify.exploration.inputs import tensor_inputs
from gradverify.exploration.legal import finite_range

KINDS = CONSTANTS, ZEROS, TIES, SCALE, DRAWS = "constants", "zeros", "ties", "scale", "draws"
_MOST_CONSTANTS = 8
_BESIDE = 1e-3  # distance from a constant, relative to it
LARGEST_FACTOR = 1e6  # by which values grow that are still near those written
_FACTORS = (100.0, 1e-3, 10.0, 0.1, 1e3, 1e-6, LARGEST_FACTOR)  # the first ones saturate, or vanish beside 1
_FAR_FACTORS = (1e8, 1e-300)
Ways = Iterator[tuple[str, Callable[[Tensor], Tensor]]]


def at_constants(base: Base) -> Iterator[Change]:
    """Yield tensors with values at, just below, just above and beyond the numbers that the code compares with."""
    found = base.seen.numbers[:_MOST_CONSTANTS]
    if not found:
        return
    paths = floating_paths(base)
    mixed = _cycle(tuple(value for constant in found for value in _around(constant)))
    for path in paths:
        yield edit(base, CONSTANTS, path, f"values around {_listed(found)}", mixed)
    for constant in found:
        for value in _around(constant):
            for path in paths:
                yield edit(base, CONSTANTS, path, f"first entry {value:.6g}", _first(value))
        for path in paths:
            yield edit(base, CONSTANTS, path, f"all {constant:.6g}", partial(_filled, constant))


def within_ranges(base: Base) -> Iterator[Change]:
    """Yield tensors spread over the range that the spec gives them, and at its ends."""
    for path in floating_paths(base):
        ends = finite_range(base.case, path)
        if ends is not None and not tensors(base)[path].is_complex():
            low, high = ends
            yield edit(base, DRAWS, path, f"drawn from uniform [{low:g}, {high:g}]", partial(_uniform, path, low, high))
            yield edit(base, DRAWS, path, f"entries {low:g} and {high:g} in turn", _cycle((low, high)))
            yield edit(base, DRAWS, path, f"all {high:g}", partial(_filled, high))
            yield edit(base, DRAWS, path, f"all {low:g}", partial(_filled, low))


def with_zeros(base: Base) -> Iterator[Change]:
    """Yield tensors with exact zeros: all of all, an entry, a row, a column, all of one; constants with -inf."""
    paths = floating_paths(base)
    if len(paths) > 1:
        yield edits(base, ZEROS, paths, "all tensors 0", torch.zeros_like)
    yield from _each(base, ZEROS, _zeros)
    far = not base.seen.names_infinity
    for path in _constants(base):
        yield edit(base, ZEROS, path, "first entry -inf", _first(-math.inf), far=far)
        if tensors(base)[path].dim() > 1:
            new = partial(_assign, where=(..., 0, slice(None)), value=-math.inf)
            yield edit(base, ZEROS, path, "first row -inf", new, far=far)


def with_ties(base: Base) -> Iterator[Change]:
    """Yield tensors with values or a row of another tensor, or with rounded or equal values, of one sign, sorted."""
    known = tensors(base)
    paths = floating_paths(base)
    for number, path in enumerate(paths):
        for other in paths[:number]:
            own, values = known[path], known[other]
            if own.dtype != values.dtype:
                continue
            if own.shape == values.shape:
                yield edit(base, TIES, path, f"equal to {other}", partial(_replaced, values))
            if min(own.dim(), values.dim()) > 1 and own.shape[-1] == values.shape[-1] and own.numel() * values.numel():
                row = values.reshape(-1, values.shape[-1])[0]
                yield edit(base, TIES, path, f"first row that of {other}", partial(_with_first_row, row))
    yield from _each(base, TIES, _ties)


def of_other_scale(base: Base) -> Iterator[Change]:
    """Yield tensors multiplied by 1e-6 to 1e6, together and each alone, and far away from 0."""
    paths = floating_paths(base)
    for factor in _FACTORS:
        if len(paths) > 1:
            yield edits(base, SCALE, paths, f"all tensors × {factor:g}", partial(_times, factor))
        for path in paths:
            yield edit(base, SCALE, path, f"× {factor:g}", partial(_times, factor))
    for path in paths:
        for shift in (10.0, -10.0, 1000.0):
            yield edit(base, SCALE, path, f"{shift:+g}", partial(_plus, shift))
        yield edit(base, SCALE, path, "first entry × 1000", lambda x: _first_times(x, 1e3))
    for factor in _FAR_FACTORS:
        for path in paths:
            yield edit(base, SCALE, path, f"× {factor:g}", partial(_times, factor), far=True)


def positive_constants(base: Base) -> Iterator[Change]:
    """Yield the change that makes what is not differentiated positive, as another value of a flag may need it."""
    paths = _constants(base)
    if paths:
        yield edits(base, DRAWS, paths, f"{', '.join(paths)}: absolute values", torch.abs)


def _constants(base: Base) -> list[str]:
    """Return the paths of the floating tensors that are not differentiated."""
    given = tensor_inputs(base.case)
    return [path for path in floating_paths(base) if given[path].requires_grad is False]


def drawn_again(base: Base) -> Iterator[Change]:
    """Yield tensors drawn from wider distributions, with both signs and, for positive inputs, below 1 and above."""
    for path in floating_paths(base):
        for seed, width in ((1, 1.0), (2, 3.0), (3, 0.3)):
            yield edit(base, DRAWS, path, f"drawn from normal [0, {width:g}]", _normal(path, seed, width))
        yield edit(base, DRAWS, path, "drawn from uniform [0, 1]", partial(_uniform, path, 0.0, 1.0))


def _each(base: Base, kind: str, ways: Callable[[Tensor], Ways]) -> Iterator[Change]:
    """Yield the first way for every tensor, then the second, and so on."""
    found = {path: list(ways(tensors(base)[path])) for path in floating_paths(base)}
    for number in range(max(map(len, found.values()), default=0)):
        for path, those in found.items():
            if number < len(those):
                yield edit(base, kind, path, *those[number])


def _zeros(tensor: Tensor) -> Ways:
    yield "first entry 0", _first(0.0)
    if tensor.dim() > 1:
        yield "first row 0", lambda x: _assign(x, (..., 0, slice(None)), 0.0)
        yield "first column 0", lambda x: _assign(x, (..., 0), 0.0)
    yield "all 0", torch.zeros_like
    if tensor.dim() and tensor.shape[-1] > 1:
        yield "first two of each row 0", lambda x: _assign(x, (..., slice(0, 2)), 0.0)
        yield "every second entry 0", lambda x: _assign(x, (..., slice(0, None, 2)), 0.0)
        yield "last entry of each row 0", lambda x: _assign(x, (..., -1), 0.0)
    yield "first entry -0.0", _first(-0.0)
    for value in dict.fromkeys(tensor[torch.isinf(tensor)].tolist()):
        if tensor.dim() > 1:
            yield f"first row {value}", partial(_assign, where=(..., 0, slice(None)), value=value)
        yield f"all {value}", partial(_filled, value)


def _ties(tensor: Tensor) -> Ways:
    real = not tensor.is_complex()
    if real:
        yield "rounded to whole numbers", torch.round
    yield "all 1", torch.ones_like
    if tensor.dim() and tensor.shape[-1] > 1:
        yield "second column equal to the first", lambda x: _assign(x, (..., 1), x[..., 0].clone())
        if real:
            yield "largest entry of each row twice", _largest_twice
            yield "smallest entry of each row twice", lambda x: -_largest_twice(-x)
    if tensor.dim() > 1 and tensor.shape[-2] > 1:
        yield "second row equal to the first", lambda x: _assign(x, (..., 1, slice(None)), x[..., 0, :].clone())
    yield "all equal to the first entry", lambda x: x.reshape(-1)[:1].expand(x.numel()).reshape(x.shape).clone()
    if real:
        yield "absolute values", torch.abs
        yield "negative absolute values", lambda x: -x.abs()
        yield "other signs", torch.neg
        yield "rounded to halves", lambda x: (2 * x).round() / 2
        yield "ascending", lambda x: x.reshape(-1).sort().values.reshape(x.shape)
        yield "descending", lambda x: x.reshape(-1).sort(descending=True).values.reshape(x.shape)
        yield "whole numbers -2 … 2", _cycle((-2.0, 1.0, 0.0, 2.0, -1.0, 1.0))


def _around(constant: float) -> tuple[float, ...]:
    beside = _BESIDE * (abs(constant) or 1.0)
    one = max(1.0, abs(constant))
    return (constant, constant - beside, constant + beside, constant + one, constant - one)


def _cycle(values: tuple[float, ...]) -> Callable[[Tensor], Tensor]:
    def new(x: Tensor) -> Tensor:
        times = math.ceil(x.numel() / len(values))
        return torch.tensor(values * max(1, times), dtype=x.dtype)[: x.numel()].reshape(x.shape)

    return new


def _times(factor: float, x: Tensor) -> Tensor:
    return x * factor


def _plus(shift: float, x: Tensor) -> Tensor:
    return x + shift


def _filled(value: float, x: Tensor) -> Tensor:
    return torch.full_like(x, value)


def _replaced(values: Tensor, _x: Tensor) -> Tensor:
    return values.clone()


def _with_first_row(row: Tensor, x: Tensor) -> Tensor:
    x.view(-1, len(row))[0] = row
    return x


def _first(value: float) -> Callable[[Tensor], Tensor]:
    def new(x: Tensor) -> Tensor:
        if x.numel():
            x.view(-1)[0] = value
        return x

    return new


def _first_times(x: Tensor, factor: float) -> Tensor:
    if x.numel():
        x.view(-1)[0] *= factor
    return x


def _assign(x: Tensor, where: object, value: float | Tensor) -> Tensor:
    x[where] = value  # type: ignore[index]
    return x


def _largest_twice(x: Tensor) -> Tensor:
    at = x.argmax(dim=-1, keepdim=True)
    return x.scatter(-1, (at + 1) % x.shape[-1], x.gather(-1, at))


def _normal(path: str, seed: int, width: float) -> Callable[[Tensor], Tensor]:
    def new(x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(len(path) * 1000 + seed)
        return (width * torch.randn(x.shape, generator=generator, dtype=x.dtype)).reshape(x.shape)

    return new


def _uniform(path: str, low: float, high: float, x: Tensor) -> Tensor:
    found = torch.rand(x.shape, generator=torch.Generator().manual_seed(len(path)), dtype=x.dtype)
    return torch.lerp(torch.full_like(found, low), torch.full_like(found, high), found)


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.6g}" for number in numbers)
