"""A Function with a slow forward in four variants: right, wrong in one entry, wrong throughout, and approximate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from torch import Tensor
from torch.autograd import Function

from tests.zoo.specimen import Specimen, specimen

Backward = Callable[..., Any]  # (ctx, *cotangents) -> gradients, as `Function.backward`


class Variant(StrEnum):
    """What is wrong with a Function's backward."""

    RIGHT = "right"
    ONE_ENTRY = "one entry"  # one entry of one input's gradient is wrong
    THROUGHOUT = "throughout"  # a factor, a transpose or a term is missing
    APPROXIMATE = "approximate"  # off by 1e-7 to 1e-3: a solve that has not converged, a truncated adjoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The four variants at the same inputs, and the function in torch's operations."""

    name: str
    functions: dict[Variant, type[Function]]
    variants: dict[Variant, Specimen]  # `apply` of each Function
    plain: Callable[..., Tensor]  # right forward that autograd differentiates
    wrong_input: str  # name of the input with the entry that ONE_ENTRY leaves zero
    wrong_index: tuple[int, ...]  # of that entry
    wrong_output: tuple[int, ...]  # of the output that depends on it most


def slow(
    name: str,
    right: type[Function],
    *,
    one_entry: tuple[tuple[int, ...], str, tuple[int, ...]],
    throughout: type[Function],
    approximate: type[Function],
    plain: Callable[..., Tensor],
    **draws: Any,
) -> Slow:
    """Return the subject; `draws` are as in `specimen`, `one_entry` is (output, input, index in the input)."""
    output, wrong_input, index = one_entry
    functions = {
        Variant.RIGHT: right,
        Variant.ONE_ENTRY: with_zero(right, list(draws).index(wrong_input), index),
        Variant.THROUGHOUT: throughout,
        Variant.APPROXIMATE: approximate,
    }
    variants = {
        variant: specimen(f"{name}, {variant}", function.apply, "slow forward", **draws)
        for variant, function in functions.items()
    }
    return Slow(
        name=name,
        functions=functions,
        variants=variants,
        plain=plain,
        wrong_input=wrong_input,
        wrong_index=index,
        wrong_output=output,
    )


def with_backward(right: type[Function], backward: Backward) -> type[Function]:
    """Return the Function with another backward."""

    class Changed(right):  # type: ignore[misc, valid-type]
        pass

    Changed.backward = staticmethod(backward)  # type: ignore[method-assign, assignment]
    Changed.__name__ = Changed.__qualname__ = right.__name__
    return Changed


def with_zero(right: type[Function], argument: int, index: tuple[int, ...]) -> type[Function]:
    """Return the Function with one entry of the gradient by one argument left zero."""

    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        gradients = _as_tuple(right.backward(ctx, *cotangents))
        changed = gradients[argument].clone()
        changed[index] = 0.0
        return *gradients[:argument], changed, *gradients[argument + 1 :]

    return with_backward(right, backward)


def with_factor(right: type[Function], argument: int, factor: float) -> type[Function]:
    """Return the Function with the gradient by one argument multiplied by a factor."""

    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        gradients = _as_tuple(right.backward(ctx, *cotangents))
        return *gradients[:argument], factor * gradients[argument], *gradients[argument + 1 :]

    return with_backward(right, backward)


def _as_tuple(gradients: Any) -> tuple[Any, ...]:
    return gradients if isinstance(gradients, tuple) else (gradients,)
