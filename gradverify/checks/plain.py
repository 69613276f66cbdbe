"""The forward of hand-written Functions as torch would differentiate it: their code, and no backward of theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.autograd import Function

_BASE: Any = Function.__mro__[1]  # where `Function.apply` hands on to, whoever holds a reference to it


@contextmanager
def torchs_own(classes: Collection[type[Function]]) -> Iterator[None]:
    """Have `apply` of these Functions run their forward as plain code, which torch records step by step.

    What a forward does to tensors behind autograd's back (`.data`, numpy, `no_grad`) has no derivative then.
    """

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        return _forward(cls, args, kwargs) if cls in classes else super(_BASE, cls).apply(*args, **kwargs)

    _BASE.apply = classmethod(apply)
    try:
        yield
    finally:
        del _BASE.apply


class _Context:
    """What forward takes for its ctx: it keeps nothing."""

    def __init__(self, count: int) -> None:
        self.needs_input_grad = (True,) * count
        self.without: tuple[Tensor, ...] = ()
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Hold nothing: no jvp will ask."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Know nothing of it: to torch, what is written in place is one more step."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.without = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Hold nothing: no backward will ask."""


def _forward(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    context = _Context(len(args))
    if cls.setup_context is not Function.setup_context:
        output = cls.forward(*args, **kwargs)
        cls.setup_context(context, args, output)
    else:
        output = cls.forward(context, *args, **kwargs)
    without = {id(tensor) for tensor in context.without}
    if isinstance(output, tuple):
        return tuple(each.detach() if id(each) in without else each for each in output)
    return output
