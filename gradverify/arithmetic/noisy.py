"""Float64 arithmetic with a little more rounding: shows how intermediate results amplify it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from gradverify.arithmetic.unrounded import chosen, gives_whole_numbers, has_numbers, is_held

NOISE_EPS = 2.0**-36  # relative width of the noise: far above float64's rounding, far below where it is not linear
_COPIES = {torch.ops.aten.clone.default, torch.ops.aten.cat.default}  # they choose what they are given


@contextmanager
def noisy_arithmetic(generator: torch.Generator, eps: float) -> Iterator[None]:
    """Multiply the float64 results of every operation by 1 + u, u uniform within ±NOISE_EPS / 2.

    This is Monte Carlo arithmetic (Parker, Pierce & Eggert, Computing in Science & Engineering 2(4), 2000), with one
    such factor for each entry and one for each line along each dimension: inside a fused operation, a statistic that is
    common to a row is rounded too. Views and operations in place are left as they are.

    What is not rounded gets no noise: numbers that an operation chose among those it got, such as the largest;
    numbers that it rounds to whole ones; and numbers that a precision with this `eps` holds, as 0 and 1 of a mask, if
    they are computed from such whole numbers and from integers alone. Other values that are computed without the
    inputs, such as angles of positions, get the noise of float32 where `eps` is coarser: no kernel computes them in
    bfloat16.
    """
    with _Noisy(generator, eps):
        yield


class _Noisy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, generator: torch.Generator, eps: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.eps = eps
        self.of_constants = min(1.0, torch.finfo(torch.float32).eps / eps)  # noise of constants, as a share
        # Tensors of the kind; the keys matter only.
        self.constants = WeakTensorKeyDictionary()  # they do not depend on the inputs
        self.exact = WeakTensorKeyDictionary()  # no rounding has gone into them

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = _leaves(args, kwargs)
        given = [value for value in leaves if isinstance(value, Tensor)]
        literal = func is torch.ops.aten.lift_fresh.default  # what torch.tensor([…]) ends with
        constant = literal or all(value in self.constants for value in given)
        whole = gives_whole_numbers(func, leaves, kwargs)
        exact = whole or literal or all(_is_whole(value) or value in self.exact for value in given)
        aliased = _is_aliased(func)
        if not (aliased or whole or (func in _COPIES and all(map(has_numbers, given)))):
            share = self.of_constants if constant else 1.0
            noisily = partial(self._with_noise, given=leaves, share=share, exact=exact)
            result = noisily(result) if isinstance(result, Tensor) else tree_map(noisily, result)
        for value in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(value, Tensor):
                _mark(self.constants, value, constant, aliased)
                _mark(self.exact, value, exact and has_numbers(value) and bool(is_held(value, self.eps).all()), aliased)
        return result

    def _with_noise(self, value: Any, given: Sequence[Any], share: float, *, exact: bool) -> Any:
        if not isinstance(value, Tensor) or not has_numbers(value) or not value.numel():
            return value
        unrounded = chosen(value, given)
        if exact:
            unrounded |= is_held(value, self.eps)
        if unrounded.all():
            return value
        noise = self._noise(value.shape, value.device)
        for dimension in range(value.dim()):
            line = [1 if place == dimension else size for place, size in enumerate(value.shape)]
            noise = noise.add_(self._noise(line, value.device))
        noise.masked_fill_(unrounded, 0.0)
        return value * noise.mul_(share * NOISE_EPS).add_(1)  # not value + value * noise: -inf stays -inf

    def _noise(self, shape: Sequence[int], device: torch.device) -> Tensor:
        source = self.generator.device
        found = torch.rand(list(shape), generator=self.generator, dtype=torch.float64, device=source)
        return found.to(device).sub_(0.5)


def _leaves(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Any]:
    """Return what an operation gets, without the lists that hold some of it."""
    given = [*args, *(kwargs or {}).values()]
    return tree_leaves(given) if any(isinstance(each, list | tuple | dict) for each in given) else given


@cache
def _is_aliased(func: Any) -> bool:
    """True if an operation returns a view, or what it was given."""
    return any(returned.alias_info is not None for returned in func._schema.returns)


def _mark(tensors: WeakTensorKeyDictionary, value: Tensor, belongs: bool, aliased: bool) -> None:
    """Add a tensor to those of a kind, or take it out; a new one is not among them."""
    if belongs:
        tensors[value] = True
    elif aliased:
        tensors.pop(value, None)  # type: ignore[no-untyped-call]


def _is_whole(value: Tensor) -> bool:
    """True if this is a tensor of integers or booleans."""
    return not (value.is_floating_point() or value.is_complex())
