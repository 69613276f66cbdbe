"""The names of Functions and custom operators, and of their parameters."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

_SUBJECTS: MutableMapping[Any, Subject] = weakref.WeakKeyDictionary()  # by class or operator: looked up once


class Subject:
    """A Function or operator: where its name is found, and what its parameters are called."""

    def __init__(self, home: Mapping[str, str], parameters: Sequence[inspect.Parameter] | None) -> None:
        self.home = dict(home)  # module, file, name; `reason` why it has no name that a spec can use
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._names = [each.name for each in parameters or () if each.kind in by_position]
        spread = [each.name for each in parameters or () if each.kind is inspect.Parameter.VAR_POSITIONAL]
        self._spread = spread[0] if spread else "args"

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by the names of their parameters; a tuple under the name of `*args`."""
        given = dict(zip(self._names, args))  # noqa: B905 - not on every Python that torch runs on
        rest = args[len(self._names) :]
        return {**given, **({self._spread: _Spread(rest)} if rest else {}), **kwargs}


class _Spread(tuple):  # type: ignore[type-arg]
    """The arguments of a `*args` parameter."""


def is_spread(value: Any) -> bool:
    """True for the arguments of a `*args` parameter."""
    return isinstance(value, _Spread)


def subject_of_function(function: Any) -> Subject:
    """Return a Function class as a subject."""
    known = _SUBJECTS.get(function)
    if known is None:
        known = _SUBJECTS[function] = Subject(_home(function), _forward_parameters(function))
    return known


def subject_of_operator(operator: Any) -> Subject:
    """Return an operator of torch's dispatcher as a subject."""
    known = _SUBJECTS.get(operator)
    if known is None:
        known = _SUBJECTS[operator] = Subject(_home_of_operator(operator), _schema_parameters(operator))
    return known


def operator_of(function: Any) -> Any:
    """Return the operator that torch made a Function of, None if it cannot be found."""
    waiting = [function.forward]
    for _ in range(4):  # the operator is a variable of forward, or of the forward that this one calls
        forward = waiting.pop()
        for cell in getattr(forward, "__closure__", None) or ():
            if hasattr(getattr(cell.cell_contents, "_schema", None), "arguments"):
                return cell.cell_contents
            if inspect.isfunction(cell.cell_contents):
                waiting.append(cell.cell_contents)
        if not waiting:
            return None
    return None


def _forward_parameters(function: Any) -> list[inspect.Parameter] | None:
    try:
        parameters = list(inspect.signature(function.forward).parameters.values())
    except (TypeError, ValueError):
        return None
    base = sys.modules["torch"].autograd.Function
    takes_ctx = function.setup_context is base.setup_context
    if takes_ctx and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        return parameters[1:]
    return parameters


def _schema_parameters(operator: Any) -> list[inspect.Parameter]:
    kinds = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(each.name, kinds[0] if each.kwarg_only else kinds[1]) for each in operator._schema.arguments
    ]


def _home(found: Any, module: str = "", qualname: str = "") -> dict[str, str]:
    """Return where an object is found by name, or the reason why it is not."""
    module, qualname = module or found.__module__, qualname or found.__qualname__
    shown = {"module": module, "name": qualname}
    if "<locals>" in qualname:
        owner = qualname.partition(".<locals>")[0]
        return {**shown, "reason": f"it is defined inside `{owner}`, where no spec can name it; move it out of there"}
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) or ""
    name = _name_in(loaded, qualname, found)
    if loaded is None or name is None:
        return {**shown, "reason": f"`{qualname}` in {module} is another object; give it a name of its own"}
    if module == "__main__":
        spec = getattr(loaded, "__spec__", None)
        module = spec.name if spec is not None else module  # python -m package.module
        if module == "__main__" and not file.endswith(".py"):
            return {**shown, "reason": "it is defined in no file"}
    return {"module": module, "name": name, "file": file}


def _name_in(module: Any, qualname: str, wanted: Any) -> str | None:
    found = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if found is wanted:
        return qualname
    names = (name for name, value in list(vars(module).items()) if value is wanted) if module is not None else ()
    return next(iter(names), None)


def _home_of_operator(operator: Any) -> dict[str, str]:
    from torch._library.custom_ops import OPDEFS

    defined = OPDEFS.get(operator._name)
    if defined is None:
        reason = "an operator that was not made by torch.library.custom_op has no name in Python"
        return {"module": "torch.ops", "name": operator._name, "reason": reason}
    function = defined._init_fn
    return _home(defined, function.__module__, function.__qualname__)
