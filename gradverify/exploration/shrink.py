"""Make a failing case smaller and simpler as long as it fails in the same way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.case import Case, Layout, Values
from gradverify.deadline import OutOfTime
from gradverify.exploration.attempt import Fails
from gradverify.exploration.change import Base
from gradverify.exploration.dims import Dimension, dimensions, named_places, shapes, with_size
from gradverify.exploration.inputs import (
    frozen,
    is_fixed,
    plain_inputs,
    shown,
    tensor_at,
    tensor_inputs,
    with_input,
    with_tensor,
    written_out,
)
from gradverify.exploration.tools import Tools

_MOST_TRIES = 60  # of one shrinking
_MOST_SINGLE = 8  # entries of a tensor that are simplified one by one


@dataclass(slots=True, kw_only=True)
class _Shrinking:
    """The smallest failing case so far; the fields change."""

    base: Base
    case: Case
    fails: Fails
    left: int = _MOST_TRIES

    def take(self, make: Callable[..., Case], *arguments: Any) -> bool:
        """Take what `make` returns for the case and the arguments if it still fails; return True if it was taken."""
        if self.left <= 0:
            return False
        try:
            smaller = make(self.case, *arguments)
        except Exception:  # of factories and constraints too, which take some shapes only
            return False
        if written_out(smaller) == written_out(self.case):
            return False
        self.left -= 1
        try:
            if not self.fails(smaller):
                return False
        except OutOfTime:  # the smallest so far is good enough
            self.left = 0
            return False
        self.case = smaller
        return True


def shrink(base: Base, case: Case, fails: Fails) -> Case:
    """Return a smaller case that fails: fewer changes, then smaller sizes, then rounder numbers."""
    state = _Shrinking(base=base, case=frozen(case, base.tools), fails=fails)
    written = frozen(base.case, base.tools)
    _put_back(state, written, written.inputs)
    if state.case.dtype != written.dtype:
        state.take(lambda case: replace(case, dtype=written.dtype))
    _smaller(state, with_size, _with_last)
    plain = plain_inputs(written, {})
    _put_back(state, written, [name for name in written.inputs if name in plain])  # which sizes may have needed
    _simpler(state)
    for path, given in tensor_inputs(state.case).items():
        if given.constraint is not None:
            state.take(with_tensor, path, tensor_at(state.case, path, base.tools))  # as they are used
    return state.case


def _put_back(state: _Shrinking, written: Case, names: Iterable[str]) -> None:
    """Give inputs, and the arguments of a constructor, the values that were written.

    Tensors of another shape are put back together: their sizes may belong to each other.
    """
    reshaped = _reshaped(state, written)
    together = {name: written.inputs[name] for name in names if name in reshaped}
    state.take(lambda case: replace(case, inputs={**case.inputs, **together}))
    for name in names:
        if name not in reshaped:
            state.take(with_input, name, written.inputs[name])
    state.take(lambda case: replace(case, init=written.init))


def _reshaped(state: _Shrinking, written: Case) -> set[str]:
    """Return the names of the inputs with tensors of another shape than written."""
    before, now = ({path: shape for path, shape, _ in shapes(case, state.base.tools)} for case in (written, state.case))
    return {path.partition("[")[0] for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def with_smaller_sizes(base: Base, case: Case, fails: Fails) -> Case:
    """Return the case with sizes that are as small as they can be."""
    state = _Shrinking(base=base, case=case, fails=fails)
    _smaller(state, with_size)
    return state.case


def _smaller(state: _Shrinking, *ways: Callable[..., Case]) -> None:
    """Make every size as small as it can be, in one of the ways."""
    for _ in range(2):
        before = state.case
        for number in range(len(dimensions(replace(state.base, case=state.case)))):
            found = dimensions(replace(state.base, case=state.case))
            if number >= len(found):
                break
            dimension = found[number]
            for size in _below(dimension.size):
                if size == 1 and dimension.beside_equals:
                    continue  # forward may take it for one that is to be repeated
                if any(state.take(make, dimension, size, state.base.tools) for make in ways):
                    break
        if written_out(state.case) == written_out(before):
            return


def _with_last(case: Case, dimension: Dimension, size: int, tools: Tools) -> Case:
    """Return the case with a smaller size that keeps the last slices, where `with_size` keeps the first."""
    for path, axis in dimension.places or named_places(case, dimension.name):
        case = with_tensor(case, path, tensor_at(case, path, tools).roll(size, axis))
    return with_size(case, dimension, size, tools)


def _below(size: int) -> tuple[int, ...]:
    sizes = dict.fromkeys((1, 2, 3, size // 4, size // 2, size - 1))
    return tuple(sorted(smaller for smaller in sizes if 0 < smaller < size))


def _simpler(state: _Shrinking) -> None:
    """Make the values of every tensor simpler, then its memory layout."""
    tools = state.base.tools
    for path, given in tensor_inputs(state.case).items():
        if is_fixed(state.base.case, path):
            continue
        if given.layout is not Layout.CONTIGUOUS:
            plain = replace(given, layout=Layout.CONTIGUOUS)
            state.take(with_input, path, plain)
        values = tensor_at(state.case, path, tools)
        if not isinstance(tensor_inputs(state.case)[path].origin, Values) or not values.numel():
            continue
        for simple in _candidates(values):
            if state.take(with_tensor, path, simple):
                break
        else:
            _one_by_one(state, path)


def _candidates(values: Tensor) -> Iterator[Tensor]:
    """Yield tensors of the same shape with simpler values, the simplest first."""
    if values.dtype is torch.bool:
        return
    counted = torch.arange(1, values.numel() + 1).reshape(values.shape)
    if values.is_complex() or values.is_floating_point():
        yield torch.ones_like(values)
        yield counted.to(values.dtype)
        if values.is_complex() or bool((values < 0).any()):
            yield -counted.to(values.dtype)
        yield counted.to(values.dtype) / 2
    if values.is_floating_point():
        yield values.round() + 0.0  # 0.0 in place of -0.0
        yield (values * 2).round() / 2 + 0.0
        yield (values * 10).round() / 10 + 0.0
        yield (values * 100).round() / 100 + 0.0
    if not values.is_floating_point() and not values.is_complex():
        yield torch.zeros_like(values)
        yield (counted - 1).to(values.dtype)


def _one_by_one(state: _Shrinking, path: str) -> None:
    """Make single entries rounder."""
    tools = state.base.tools
    count = tensor_at(state.case, path, tools).numel()
    for place in range(min(count, _MOST_SINGLE)):
        values = tensor_at(state.case, path, tools)
        if not values.is_floating_point():
            return
        entry = float(values.reshape(-1)[place])
        whole = (round(entry), math.floor(entry), math.ceil(entry)) if math.isfinite(entry) else ()
        rounded = (*map(float, whole), round(entry, 1)) if whole else ()
        for simple in dict.fromkeys((1.0, 2.0, *rounded)):
            if simple == entry:
                break
            changed = values.clone()
            changed.view(-1)[place] = simple
            if state.take(with_tensor, path, changed):
                break


def differences(base: Base, case: Case, base_tensors: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[str, ...]:
    """Return how a case differs from the one written, in arguments, shapes and dtype; one phrase each."""
    found = []
    before, after = plain_inputs(base.case, base.tools.defaults), plain_inputs(case, {})
    written = base.case
    for name, value in after.items():
        if name not in before or repr(before[name]) != repr(value):
            found.append(f"{name}: {shown(value)}" + (f" (was {shown(before[name])})" if name in before else ""))
    for path, tensor in tensors.items():
        was = base_tensors.get(path)
        if was is None or was.shape != tensor.shape:
            found.append(f"{path}: shape {list(tensor.shape)} (was {'none' if was is None else list(was.shape)})")
    for path, given in tensor_inputs(case).items():
        if path in tensor_inputs(written) and given.layout is not tensor_inputs(written)[path].layout:
            found.append(f"{path}: {given.layout.value} in memory")
    if case.dtype != written.dtype:
        found.append(f"in {case.dtype}")
    return tuple(found)
