"""Hand-written Functions as plain code: their forward step by step, and no backward of theirs.

torch can then do with a forward what `torch.autograd.Function` forbids: differentiate it by itself, or run it for many
points at once under `torch.vmap`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from torch.autograd import Function

Handle = Callable[[Callable[[], Any], type[Function], tuple[Any, ...], dict[str, Any]], Any]

_INNER: Any = Function.__mro__[1]  # what `Function.apply` hands on to, outside of vmap, whoever holds a reference to it
_FOREIGN = ("torch", "gradverify")  # packages whose Functions are nobody's to verify


def is_hand_written(function: type[Function]) -> bool:
    """Tell whether a Function is neither torch's nor our own."""
    return function.__module__.split(".")[0] not in _FOREIGN


@contextmanager
def intercepted(handle: Handle) -> Iterator[None]:
    """Call `handle(original, function, args, kwargs)` in place of the `apply` of every Function.

    In this thread only: other threads may train meanwhile, or intercept calls of their own. `original()` is the call
    itself. Outside of vmap, one call may be handled twice, since `Function.apply` hands on to an `apply` that is
    intercepted as well.
    """
    _PATCH.enter()
    handlers = _handlers()
    handlers.append(handle)
    try:
        yield
    finally:
        handlers.pop()
        _PATCH.leave()


@contextmanager
def plainly(chosen: Callable[[type[Function]], bool] = is_hand_written) -> Iterator[None]:
    """Have `apply` of the Functions chosen run their forward as plain code.

    What a forward does to tensors behind autograd's back (`.data`, numpy, `no_grad`) has no derivative then. An `apply`
    that somebody has put aside before (`relu = ReLU.apply`) is still the Function's own under vmap, and everywhere in
    torch 2.14.1 and newer, where it is in C.
    """

    def handle(original: Callable[[], Any], cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _forward(cls, args, kwargs) if chosen(cls) else original()

    with intercepted(handle):
        yield


class _Patch:
    """The `apply` that calls the handlers: put in place for the first user in any thread, removed after the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.saved: Any = None  # `Function.apply` as it was

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.saved = vars(Function)["apply"]
                Function.apply = classmethod(_handled(self.original))  # type: ignore[assignment, method-assign]
                _INNER.apply = classmethod(_handled(_inherited))
            self.users += 1

    def original(self, cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        """Call `Function.apply` as it was, be it written in Python or, as in torch 2.14.1 and newer, in C."""
        return self.saved.__get__(None, cls)(*args, **kwargs)

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                Function.apply = self.saved  # type: ignore[method-assign]
                del _INNER.apply


_PATCH = _Patch()
_LOCAL = threading.local()


def _handlers() -> list[Handle]:
    """Return the handlers of this thread, the innermost last."""
    if not hasattr(_LOCAL, "handlers"):
        _LOCAL.handlers = []
    found: list[Handle] = _LOCAL.handlers
    return found


def _handled(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `apply` that calls the handlers of its thread in place of the one given; they may call that one."""

    def handled(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        call = partial(apply, cls, *args, **kwargs)
        for handle in _handlers():
            call = partial(handle, call, cls, args, kwargs)
        return call()

    return handled


def _inherited(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    """Call the `apply` that `_INNER` inherits."""
    return super(_INNER, cls).apply(*args, **kwargs)


class _Context:
    """What forward takes for its ctx: it keeps nothing."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
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
    if cls.setup_context is not Function.setup_context:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()  # as `setup_context` is told of all arguments
        context = _Context(bound.args)
        output = cls.forward(*bound.args, **bound.kwargs)
        cls.setup_context(context, bound.args, output)
    else:
        context = _Context(args)
        output = cls.forward(context, *args, **kwargs)
    without = {id(tensor) for tensor in context.without}
    if isinstance(output, tuple):
        return tuple(each.detach() if id(each) in without else each for each in output)
    return output
