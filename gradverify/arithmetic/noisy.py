"""Float64 arithmetic with a little more rounding: shows how intermediate results amplify it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from gradverify.arithmetic.fused import STEPS
from gradverify.arithmetic.unrounded import chosen, gives_whole_numbers, has_numbers, is_held

NOISE_EPS = 2.0**-36  # relative width of the noise: far above float64's rounding, far below where it is not linear
_LESS_NOISE = 2.0**-48  # a second width, as far from float64's rounding as needed to see it
_IN_PROPORTION = 64.0  # ratio of the changes by noise of two widths, each by its width; at a jump it is 2^12
_EVALUATIONS = 4  # at each width
_OF_ONE = 4096.0  # times the change at one evaluation, which may happen to be small: that of others is no larger
_COPIES = {torch.ops.aten.clone.default, torch.ops.aten.cat.default}  # they choose what they are given

# (function that evaluates, its exact result) -> change per unit of rounding, of the same shape
Measure = Callable[[Callable[[], Tensor], Tensor], Tensor]


def amplification(evaluate: Callable[[], Tensor], exact: Tensor) -> Tensor:
    """Return how far rounding on the way to a result may move it, per unit of rounding; of the shape of `exact`.

    `evaluate` computes the result anew, and `exact` is what it returns without noise. The change is that by noisy
    arithmetic of two widths. It is 0 where it is not in proportion to the width: there, noise decides between branches.
    What an extension or numpy computes counts as one operation.
    """
    generator = torch.Generator().manual_seed(0)
    large, small = (
        _largest_change(evaluate, exact, generator, width, _EVALUATIONS) for width in (NOISE_EPS, _LESS_NOISE)
    )
    in_proportion = (large <= _IN_PROPORTION * small) & (small <= _IN_PROPORTION * large)
    return torch.where(in_proportion, torch.maximum(large, small), 0.0)


def amplification_bound(evaluate: Callable[[], Tensor], exact: Tensor, *, evaluations: int) -> Tensor:
    """Return an upper bound on `amplification` from fewer evaluations: it shows where more would be in vain.

    It is rough: several changes are less likely to be small together than a single one, so that it falls with their
    number.
    """
    change = _largest_change(evaluate, exact, torch.Generator().manual_seed(0), NOISE_EPS, evaluations)
    return change.mul_(_OF_ONE ** (1 / evaluations))


# Each closer than the one before, and dearer.
BOUNDS: tuple[Measure, ...] = tuple(partial(amplification_bound, evaluations=count) for count in (1, 2))


def _largest_change(
    evaluate: Callable[[], Tensor], exact: Tensor, generator: torch.Generator, width: float, evaluations: int
) -> Tensor:
    """Return the largest change of a result by noise, per unit of noise; 0 where it is not finite."""
    largest = torch.zeros_like(exact)
    with noisy_arithmetic(generator, torch.finfo(torch.float64).eps, width):
        for _ in range(evaluations):
            change = (evaluate() - exact).abs().div_(width).nan_to_num_(0.0, 0.0, 0.0)
            largest = torch.maximum(largest, change)
    return largest


@contextmanager
def noisy_arithmetic(generator: torch.Generator, eps: float, width: float = NOISE_EPS) -> Iterator[None]:
    """Multiply the float64 results of every operation by 1 + u, u uniform within ±width / 2.

    This is Monte Carlo arithmetic (Parker, Pierce & Eggert, Computing in Science & Engineering 2(4), 2000), with one
    such factor for each entry and one for each line along each dimension: inside a fused operation, a statistic that is
    common to a row is rounded too. Views and operations in place are left as they are.

    What is not rounded gets no noise: numbers that an operation chose among those it got, such as the largest;
    numbers that it rounds to whole ones; and numbers that a precision with this `eps` holds, as 0 and 1 of a mask, if
    they are computed from such whole numbers and from integers alone. Other values that are computed without the
    inputs, such as angles of positions, get the noise of float32 where `eps` is coarser: no kernel computes them in
    bfloat16. The softmax and its relatives are computed step by step, each with noise.
    """
    with _Noisy(generator, eps, width):
        yield


class _Noisy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, generator: torch.Generator, eps: float, width: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.eps = eps
        self.width = width
        self.of_constants = min(1.0, torch.finfo(torch.float32).eps / eps)  # noise of constants, as a share
        # Tensors of the kind; the keys matter only.
        self.constants = WeakTensorKeyDictionary()  # they do not depend on the inputs
        self.exact = WeakTensorKeyDictionary()  # no rounding has gone into them

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in STEPS:
            with self:
                return STEPS[func](*args, **(kwargs or {}))
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
            noisily = partial(self._with_noise, func=func, given=leaves, share=share, exact=exact)
            result = noisily(result) if isinstance(result, Tensor) else tree_map(noisily, result)
        for value in (result,) if isinstance(result, Tensor) else tree_leaves(result):
            if isinstance(value, Tensor):
                _mark(self.constants, value, constant, aliased)
                _mark(self.exact, value, exact and has_numbers(value) and bool(is_held(value, self.eps).all()), aliased)
        return result

    def _with_noise(self, value: Any, func: Any, given: Sequence[Any], share: float, *, exact: bool) -> Any:
        if not isinstance(value, Tensor) or not has_numbers(value) or not value.numel():
            return value
        unrounded = chosen(func, value, given)
        if exact:
            unrounded |= is_held(value, self.eps)
        if unrounded.all():
            return value
        noise = self._noise(value.shape, value.device)
        for dimension in range(value.dim()):
            line = [1 if place == dimension else size for place, size in enumerate(value.shape)]
            noise = noise.add_(self._noise(line, value.device))
        noise.masked_fill_(unrounded, 0.0)
        return value * noise.mul_(share * self.width).add_(1)  # not value + value * noise: -inf stays -inf

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
