"""Interception of torch in user code: Functions run as plain code, casts and draws are recorded, `.data` is refused.

Without the backward of hand-written `torch.autograd.Function`s, torch can do what a Function prevents: differentiate
the forward itself, or evaluate it at many points at once under `torch.vmap`.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Handle = Callable[[Callable[[], Any], type[Function], tuple[Any, ...], dict[str, Any]], Any]

_INNER: Any = Function.__mro__[1]  # `Function.apply` calls its `apply` outside vmap, also if it was stored before
_NOT_UNDER_TEST = ("torch", "gradverify")  # packages whose Functions are not under test


def is_hand_written(function: type[Function]) -> bool:
    """Return True if a Function is defined neither in torch nor in gradverify."""
    return function.__module__.split(".")[0] not in _NOT_UNDER_TEST


@contextmanager
def intercepted_apply(handle: Handle) -> Iterator[None]:
    """Call `handle(original, function, args, kwargs)` in place of the `apply` of every Function.

    Only calls of this thread are intercepted. `original()` makes the call itself. Outside vmap, one call may be handled
    twice, since `Function.apply` calls the `apply` of its base class, which is intercepted as well.
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
def plain_forwards(chosen: Callable[[type[Function]], bool] = is_hand_written) -> Iterator[None]:
    """Make `apply` of the Functions for which `chosen` is true run their forward as plain code.

    Operations that a forward hides from autograd (`.data`, numpy, `no_grad`) have no derivative then. An `apply` that
    was stored before (`relu = ReLU.apply`) is not replaced under vmap, nor at all in torch 2.14.1 and newer, where it
    is implemented in C.
    """

    def handle(original: Callable[[], Any], cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _forward(cls, args, kwargs) if chosen(cls) else original()

    with intercepted_apply(handle):
        yield


@contextmanager
def without_data(nodes: Sequence[Any]) -> Iterator[None]:
    """Let `.data` of batched tensors raise in the backwards of these nodes: it ends the process (torch 2.13)."""

    def guarded(node: Any) -> Callable[..., Any]:
        def apply(*cotangents: Any) -> Any:
            with _NoData():
                return type(node).apply(node, *cotangents)

        return apply

    for node in nodes:
        node.apply = guarded(node)
    try:
        yield
    finally:
        for node in nodes:
            del node.apply  # it holds the node


class _NoData(TorchFunctionMode):
    """Mode in which `.data` of a batched tensor raises."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _DATA and is_legacy_batchedtensor(args[0]):
            raise RuntimeError("`.data` of a batched tensor")
        return func(*args, **(kwargs or {}))


_DATA = (Tensor.data.__get__, Tensor.data.__set__)  # type: ignore[attr-defined]


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of torch that sees every operator, and loads no compiler."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes two seconds."""
        return False


class CastTrace(OperatorMode):
    """Dispatch mode that records casts between floating-point dtypes.

    `down` holds the target dtypes of narrowing casts that changed a value, `up` the source dtypes of widening casts,
    and `largest` the largest finite magnitude in each dtype coarser than float64. Casts inside custom kernels are not
    seen, and a tensor that is widened may be a constant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down: set[torch.dtype] = set()
        self.up: set[torch.dtype] = set()
        self.largest: dict[torch.dtype, float] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and _is_coarse(result.dtype):
            self._record_magnitude(result)
        source = args[0] if args else None
        if isinstance(source, Tensor) and isinstance(result, Tensor) and source.dtype != result.dtype:
            self._record_cast(source, result)
        return result

    def _record_magnitude(self, result: Tensor) -> None:
        if result.layout is torch.strided and result.numel():
            size = float(result.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax())
            self.largest[result.dtype] = max(size, self.largest.get(result.dtype, 0.0))

    def _record_cast(self, source: Tensor, result: Tensor) -> None:
        if source.shape != result.shape:
            return
        if _is_narrower(result.dtype, source.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.down.add(result.dtype)
        elif _is_narrower(source.dtype, result.dtype) and source.dim() > 0:  # 0-d tensors are taken for constants
            self.up.add(source.dtype)


class DrawTrace(OperatorMode):
    """Dispatch mode that appends the random numbers that torch draws, in float64, to a list.

    Of an operation that draws inside, as a fused dropout, its results count; of a custom kernel nothing is seen.
    """

    def __init__(self, draws: list[Tensor]) -> None:
        super().__init__()
        self.draws = draws

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawn = [each.detach() for each in tree_leaves(result) if isinstance(each, Tensor)]
            self.draws += [each.to(torch.float64, copy=True) for each in drawn]  # they may be changed in place
        return result


def rounding_in_low_precision(run: Callable[[], object]) -> float:
    """Return the largest rounding error of a number in low precision in `run()`: eps times its magnitude.

    It is 0 if all numbers are in float64, or if the computation raises RuntimeError.
    """
    try:
        with CastTrace() as trace:
            run()
    except RuntimeError:
        return 0.0
    return max((torch.finfo(dtype).eps * size for dtype, size in trace.largest.items()), default=0.0)


class _Patch:
    """Patch of `Function.apply` that calls the handlers; set by the first user in any thread, removed by the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.saved: Any = None  # the unpatched `Function.apply`

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.saved = vars(Function)["apply"]
                Function.apply = classmethod(_intercepting(self.original))  # type: ignore[assignment, method-assign]
                _INNER.apply = classmethod(_intercepting(_inherited))
            self.users += 1

    def original(self, cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        """Call the unpatched `Function.apply`, which is in Python or, in torch 2.14.1 and newer, in C."""
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
    handlers: list[Handle] = _LOCAL.handlers
    return handlers


def _intercepting(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `apply` that calls the handlers of the current thread, which may call the given one."""

    def apply_handlers(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        call = partial(apply, cls, *args, **kwargs)
        for handle in _handlers():
            call = partial(handle, call, cls, args, kwargs)
        return call()

    return apply_handlers


def _inherited(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
    """Call the `apply` that `_INNER` inherits."""
    return super(_INNER, cls).apply(*args, **kwargs)


class _Context:
    """A `ctx` for forward that records only what is needed without a backward."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        self.non_differentiable: tuple[Tensor, ...] = ()
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Do nothing: no jvp is computed."""

    def mark_dirty(self, *tensors: Any) -> None:
        """Do nothing: torch records in-place operations of plain code by itself."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Do nothing: no backward is run."""


def _forward(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if cls.setup_context is not Function.setup_context:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()  # `setup_context` gets all arguments, defaults included
        context = _Context(bound.args)
        output = cls.forward(*bound.args, **bound.kwargs)
        cls.setup_context(context, bound.args, output)
    else:
        context = _Context(args)
        output = cls.forward(context, *args, **kwargs)
    non_differentiable = {id(tensor) for tensor in context.non_differentiable}
    if isinstance(output, tuple):
        return tuple(each.detach() if id(each) in non_differentiable else each for each in output)
    return output


def _is_narrower(one: torch.dtype, other: torch.dtype) -> bool:
    return _is_rounded(one) and _is_rounded(other) and torch.finfo(one).eps > torch.finfo(other).eps


def _is_rounded(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _is_coarse(dtype: torch.dtype) -> bool:
    return _is_rounded(dtype) and torch.finfo(dtype).eps > torch.finfo(torch.float64).eps
