"""Integer and boolean tensors: duplicates, other orders, first and last only, special values, masks of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor

from gradverify.exploration.change import Base, Change, edit, tensors
from gradverify.exploration.legal import index_limit

KIND = "indices"


def proposals(base: Base) -> Iterator[Change]:
    """Yield the changes of every integer and boolean tensor."""
    for path, tensor in tensors(base).items():
        if not tensor.numel() or tensor.is_floating_point() or tensor.is_complex():
            continue
        ways = _masks() if tensor.dtype is torch.bool else _indices(base, path, tensor)
        for phrase, new in ways:
            yield edit(base, KIND, path, phrase, new)


def _masks() -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    yield "all true", torch.ones_like
    yield "all false", torch.zeros_like
    yield "inverted", torch.logical_not
    yield "first row false", lambda mask: _filled(mask, 0, False)
    yield "first entry false, the others true", lambda mask: _at(torch.ones_like(mask), 0, False)
    yield "first entry true, the others false", lambda mask: _at(torch.zeros_like(mask), 0, True)
    yield "rolled by one", lambda mask: mask.reshape(-1).roll(1).reshape(mask.shape)
    yield "true entries first", lambda mask: mask.reshape(-1).sort(descending=True).values.reshape(mask.shape)
    yield "last entry false, the others true", lambda mask: _at(torch.ones_like(mask), -1, False)


def _indices(base: Base, path: str, tensor: Tensor) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    below = index_limit(base.case, path)
    last = int(tensor.max()) if below is None else below - 1
    special = base.case.explore.indices.get(path)
    values = base.seen.special if special is None else special.special
    yield "first two equal", lambda index: _at(index, min(1, index.numel() - 1), int(index.reshape(-1)[0]))
    for value in values[:3]:
        yield f"first entry {value}", partial(_at, place=0, value=value)
    yield "all equal", lambda index: torch.full_like(index, int(index.reshape(-1)[0]))
    yield "descending", lambda index: index.reshape(-1).sort(descending=True).values.reshape(index.shape)
    yield "ascending", lambda index: index.reshape(-1).sort().values.reshape(index.shape)
    yield "all 0", torch.zeros_like
    yield f"all {last}", lambda index: torch.full_like(index, last)
    yield "repeated 0, 0, 1, 1, …", lambda index: (torch.arange(index.numel()) // 2 % (last + 1)).reshape(index.shape)
    if tensor.numel() > 2:  # offsets of an empty part, between others and at the end
        yield "third entry equal to the second", lambda index: _at(index, 2, int(index.reshape(-1)[1]))
        yield "last but one equal to the last", lambda index: _at(index, -2, int(index.reshape(-1)[-1]))
    if tensor.numel() > 1:  # counts have a sum, and offsets an order, that other changes break
        yield "first entry one more, last one less", lambda index: _moved(index, {0: 1, -1: -1})
        yield "second entry one less", lambda index: _moved(index, {1: -1})
    yield "reversed", lambda index: index.reshape(-1).flip(0).reshape(index.shape)
    yield (
        "counted down from the last",
        lambda index: ((last - torch.arange(index.numel())) % (last + 1)).reshape(index.shape),
    )
    for value in values[:3]:
        yield f"all {value}", partial(torch.full_like, fill_value=value)
        yield f"last entry {value}", partial(_at, place=-1, value=value)


def _at(tensor: Tensor, place: int, value: int | bool) -> Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[place] = value
    return tensor


def _moved(tensor: Tensor, steps: Mapping[int, int]) -> Tensor:
    """Return the tensor with some entries moved; unchanged if that makes a number negative where none is."""
    moved = tensor.clone()
    for place, step in steps.items():
        moved.view(-1)[place] += step
    return tensor if moved.min() < 0 <= tensor.min() else moved


def _filled(mask: Tensor, row: int, value: bool) -> Tensor:
    if mask.dim():
        mask[row] = value
    return mask
