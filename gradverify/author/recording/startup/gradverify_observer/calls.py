"""One call of a Function or custom operator to the notes about it."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from gradverify_observer.describe import described, is_traced
from gradverify_observer.operators import has_formula, operator_of, overload_of, running_calls
from gradverify_observer.sink import Sink
from gradverify_observer.subjects import Subject, subject_of_function, subject_of_operator

Sinks = Mapping[str, Sink]
_GENERATED = "torch._library.autograd"  # module of the Functions that torch makes of operators with a formula

_HOME = "torch.autograd.function"  # module of `apply`
_FUNCTORCH = "torch._functorch"


class _InNote(_thread._local):
    """True in a thread that is taking a note: calls that this makes are not the command's."""

    now = False


_IN_NOTE = _InNote()


def note_function(sinks: Sinks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a call of `function.apply`; those of Functions in torch itself are left out."""
    if function.__module__ == _GENERATED:
        _tolerantly(sinks, lambda: _note_generated(sinks, function, args))
    elif _is_of_command(function):
        _tolerantly(sinks, lambda: _note(sinks, subject_of_function(function), args, kwargs))


def note_raised_function(sinks: Sinks, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Take back the note of a call of `function.apply` that raised: it has no gradient."""
    if _is_of_command(function):
        _tolerantly(sinks, lambda: _take_back(sinks, subject_of_function(function), args, kwargs))


def note_operator(sinks: Sinks, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note a call of an operator with a formula for its gradient, unless the operator itself makes the call."""
    _tolerantly(sinks, lambda: _with_operator(_note, sinks, called, args, kwargs))


def note_raised_operator(sinks: Sinks, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Take back the note of a call of an operator that raised."""
    _tolerantly(sinks, lambda: _with_operator(_take_back, sinks, called, args, kwargs))


def _tolerantly(sinks: Sinks, take: Callable[[], None]) -> None:
    """Take a note. What goes wrong is noted too, and goes no further."""
    if _IN_NOTE.now:
        return
    _IN_NOTE.now = True
    try:
        _uncompiled(take)
    except Exception as error:
        for sink in sinks.values():
            sink.add_failure(f"{type(error).__name__}: {error}")
    finally:
        _IN_NOTE.now = False


def _uncompiled(take: Callable[[], None]) -> None:
    """Let torch.compile, which may run this code, leave the functions alone that it calls."""
    set_compiler = sys.modules["torch"]._C._dynamo.eval_frame.set_eval_frame
    compiler = set_compiler(None)
    try:
        take()
    finally:
        set_compiler(compiler)


def _is_of_command(function: Any) -> bool:
    """True for Functions outside of torch, unless torch.func calls them for a call of `apply` that was noted."""
    return not f"{function.__module__}.".startswith("torch.") and not _is_called_by_functorch()


def _is_called_by_functorch() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != _HOME:
        frame = frame.f_back
    caller = frame.f_back if frame is not None else None
    return caller is not None and str(caller.f_globals.get("__name__")).startswith(_FUNCTORCH)


def _note_generated(sinks: Sinks, function: Any, args: tuple[Any, ...]) -> None:
    operator = operator_of(function)
    if operator is None or running_calls(operator):  # 0 if C++ calls the operator, as compiled TorchScript does
        return
    structure = getattr(args[-1], "input_spec", None)
    if structure is not None:  # lists of tensors were spread
        from torch.utils._pytree import tree_unflatten

        args = tuple(tree_unflatten(list(args[:-1]), structure))
    _note(sinks, subject_of_operator(operator), args[:-1], args[-1].keyword_only_args)


def _with_operator(
    then: Callable[..., None], sinks: Sinks, called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    operator = overload_of(called, args, kwargs)
    if operator is not None and has_formula(operator) and running_calls(operator) == 1:
        then(sinks, subject_of_operator(operator), args, kwargs)


def _note(sinks: Sinks, subject: Subject, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    given = subject.bind(args, kwargs)
    if not _is_tracing(given):
        call = {name: described(value) for name, value in given.items()}
        for sink in sinks.values():
            sink.add(subject, call, given)


def _take_back(sinks: Sinks, subject: Subject, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    given = subject.bind(args, kwargs)
    if not _is_tracing(given):
        call = {name: described(value) for name, value in given.items()}
        for sink in sinks.values():
            sink.take_back(subject, call)


def _is_tracing(given: Mapping[str, Any]) -> bool:
    """True if torch looks at the code, and no call takes place."""
    return bool(sys.modules["torch"].compiler.is_compiling()) or is_traced(given)
