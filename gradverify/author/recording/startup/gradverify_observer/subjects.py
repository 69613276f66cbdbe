"""The names of Functions and custom operators, and of their parameters."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from gradverify_observer.operators import custom_op_of, name_in_torch_ops, parameters_of, places_of

_SUBJECTS: MutableMapping[Any, Subject] = weakref.WeakKeyDictionary()  # by class or operator: looked up once


class Subject:
    """A Function or operator: where its name is found, and what its parameters are called."""

    def __init__(
        self,
        home: Mapping[str, str],
        parameters: Sequence[inspect.Parameter] | None,
        places: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.home = dict(home)  # module, file, name; `reason` why it has no name that a spec can use
        self.places = places  # modules that lead to an operator, one of which may be its home
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
        known = _SUBJECTS[operator] = _subject_of_operator(operator)
    return known


def _subject_of_operator(operator: Any) -> Subject:
    """Return a `custom_op` under the name that it has in Python, any other operator with the places to find it."""
    defined = custom_op_of(operator)
    if defined is not None:
        function = defined._init_fn
        home = _home(defined, function.__module__, function.__qualname__)
        if "reason" not in home:
            return Subject(home, parameters_of(operator))
    name = name_in_torch_ops(operator)
    reason = f"no module that a spec can name leads to it; give it a name in one, as in `NAME = {name}`"
    home = {"module": "torch.ops", "name": name, "reason": reason}
    return Subject(home, parameters_of(operator), places_of(operator))


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


def _home(found: Any, module: str = "", qualname: str = "") -> dict[str, str]:
    """Return where an object is found by name, or the reason why it is not."""
    module, qualname = module or found.__module__, qualname or found.__qualname__
    shown = {"module": module, "name": qualname}
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) or ""
    name = _name_in(loaded, qualname, found)
    if "<locals>" in qualname and name is None:
        owner = qualname.partition(".<locals>")[0]
        return {**shown, "reason": f"it is defined inside `{owner}`, where no spec can name it; move it out of there"}
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
