"""`explore`: change the inputs of a function in search of one at which its gradient is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from gradverify.api.verify import common_dtype, names_of, printed_width, require
from gradverify.case import (
    Case,
    ExploreRules,
    Exploring,
    IndexRange,
    Input,
    ListInput,
    Literal,
    SizeRange,
    Target,
    TensorInput,
    Trying,
    TupleArgument,
    Values,
)
from gradverify.core.model.generators import restored_generators
from gradverify.core.model.tensor_kinds import is_special, why_unreadable
from gradverify.exploration.inputs import described
from gradverify.report.explored_view import exploration_text
from gradverify.result import Exploration
from gradverify.run.exploring import explored
from gradverify.run.signature import forward_parameters

_CHECKS = ("gradcheck", "gradgradcheck")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Explored(Exploration):
    """An exploration that prints as the screen shows it."""

    def __str__(self) -> str:
        return exploration_text(self, printed_width())


def explore(
    function: Callable[..., Any] | type[torch.autograd.Function],
    inputs: Sequence[Any],
    *,
    dims: Mapping[str, Sequence[int | str]] | None = None,
    sizes: Mapping[str, Mapping[str, int] | tuple[int, int]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    indices: Mapping[str, Mapping[str, Any] | int] | None = None,
    choices: Mapping[str, Sequence[Any]] | None = None,
    require: str | None = None,
    fixed: Sequence[str] = (),
    budget: int = 400,
    seed: int = 0,
    checks: Sequence[str] = _CHECKS,
    names: Sequence[str] | None = None,
    reference: Callable[..., Any] | type[torch.autograd.Function] | None = None,
) -> Exploration:
    """Change `inputs` one by one, and return those at which the gradient of `function` is wrong.

    `function` and `inputs` are those of `verify`. Each try changes an argument, a size, or the values of a tensor; it
    counts if forward runs and returns finite numbers. What differs from finite differences along a few directions is
    judged by the check, and only what fails there is a failure. Failures are made as small as they can be.

    The other arguments keep tries legal. `dims` names the dimensions of inputs, `{"x": ("n", "d"), "w": ("d",)}`: equal
    names stay equal. `sizes` are the least and the largest size of a name, or a mapping such as
    `{"from": 4, "to": 300, "multiple_of": 4}`; `ranges` are the least and the largest value of an input; `indices` are
    the number that an integer input stays below, or `{"below": "n", "special": [-100]}`; `choices` are the values that
    an argument may have; `require` is a condition over inputs and dims such as "len(y) == n // 2 + 1"; `fixed` are the
    names of what stays as it is.

    The result is true if there is no failure. It has `failures`, `extremes` (wrong numbers far outside the range of the
    inputs) and `questions` (forward runs, backward raises), and the number of `tries`. The same arguments give the same
    result, and `print` shows it as the screen does. Everything runs in this process: a try that crashes ends it.

    Raises what `verify` raises for arguments that it cannot take, and ValueError for a budget below 1 and
    for `names` other than those of forward's parameters.
    """
    require_arguments(function, inputs, checks, budget)
    called = names_of(function, tuple(inputs), names)
    _require_own_names(function, called, names)
    given = dict(zip(called, inputs, strict=True))
    floating = [value for value in _tensors(inputs) if value.is_floating_point() or value.is_complex()]
    dtype = common_dtype(floating)
    shown = {name: tuple(dims[name]) if dims and name in dims else None for name in called}
    case = Case(
        id=getattr(function, "__name__", type(function).__name__),
        draw_key="explore",
        spec="",
        line=0,
        target=_target_of(function),
        reference=None if reference is None else _target_of(reference),
        inputs=_spread(function, {name: _described(value, dtype, shown[name]) for name, value in given.items()}),
        checks=tuple(checks),
        dtype=dtype,
        device=str(floating[0].device) if floating else "cpu",
        seed=seed,
        dims=_sizes_of_names(given, shown),
        explore=ExploreRules(
            sizes={name: _size_range(name, rule) for name, rule in (sizes or {}).items()},
            ranges={name: (float(low), float(high)) for name, (low, high) in (ranges or {}).items()},
            indices={name: _index_range(name, rule) for name, rule in (indices or {}).items()},
            choices={name: tuple(values) for name, values in (choices or {}).items()},
            require=require or "",
            fixed=tuple(fixed),
            budget=budget,
        ),
    )
    with restored_generators(()):
        found = explored(case, function, reference, Exploring(budget=budget), _ignored)
    return Explored(**{field.name: getattr(found, field.name) for field in fields(found)})


def require_arguments(function: Any, inputs: Any, checks: Sequence[str], budget: Any) -> None:
    """Raise ValueError or TypeError for what cannot be explored."""
    require(function, inputs, checks)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget: expected a number of tries above zero, found {budget!r}")


def _require_own_names(function: Any, called: Sequence[str], names: Sequence[str] | None) -> None:
    """Raise ValueError for names other than those of forward's parameters, if it has any."""
    own = called if names is None or forward_parameters(function) is None else names_of(function, tuple(called), None)
    if tuple(own) != tuple(called):
        raise ValueError(f"names: forward calls its inputs {', '.join(own)}; found {', '.join(called)}")


def _ignored(_trying: Trying) -> None:
    """Do nothing with the results so far."""


def _target_of(function: Any) -> Target:
    name = str(getattr(function, "__qualname__", type(function).__name__))
    module = str(getattr(function, "__module__", "__main__"))
    return Target(module=module, name=name, written=f"{module}:{name}")


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _described(value: Any, dtype: str, sizes: tuple[int | str, ...] | None) -> Input:
    if isinstance(value, Tensor):
        return _tensor(value, dtype, sizes)
    if isinstance(value, list) and value and all(isinstance(entry, Tensor) for entry in value):
        items = [_tensor(entry, dtype, None) for entry in value]
        if all(isinstance(item, TensorInput) for item in items):
            return ListInput(items=tuple(items))
    if isinstance(value, tuple) and not _tensors(value):
        return TupleArgument(items=value)
    return Literal(value=value)


def _spread(function: Any, inputs: Mapping[str, Input]) -> dict[str, Input]:
    """Return the inputs with those of an *args parameter, args[0], args[1] and so on, as one list."""
    parameters = forward_parameters(function) or ()
    spread = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None)
    found = {name: given for name, given in inputs.items() if name.partition("[")[0] != spread}
    entries = tuple(given for name, given in inputs.items() if name not in found)
    return {**found, spread: ListInput(items=entries)} if spread is not None and entries else found


def _tensor(value: Tensor, dtype: str, sizes: tuple[int | str, ...] | None) -> Input:
    """Return the description of a tensor; one that is sparse or of a class of its own stays as it is."""
    if is_special(value) or why_unreadable(value):
        return Literal(value=value)
    own = str(value.dtype).removeprefix("torch.")
    like = TensorInput(
        origin=Values(values=[]),
        dtype=None if own == dtype else own,
        requires_grad=value.requires_grad,
    )
    found = described(value.detach().cpu(), like)
    return (
        found
        if sizes is None
        else TensorInput(
            origin=found.origin,
            shape=tuple(value.shape),
            sizes=sizes,
            dtype=found.dtype,
            requires_grad=found.requires_grad,
        )
    )


def _sizes_of_names(given: Mapping[str, Any], shown: Mapping[str, tuple[int | str, ...] | None]) -> dict[str, int]:
    """Return the size of every name; raises ValueError if a name has two, or a shape has another length."""
    found: dict[str, int] = {}
    for name, sizes in shown.items():
        if sizes is None:
            continue
        shape = tuple(given[name].shape)
        if len(shape) != len(sizes):
            raise ValueError(f"dims: `{name}` has {len(shape)} dimensions, found {len(sizes)} names")
        for size, written in zip(shape, sizes, strict=True):
            if isinstance(written, str) and written.isidentifier() and found.setdefault(written, size) != size:
                raise ValueError(f"dims: `{written}` is {found[written]} and {size}")
    return found


def _size_range(name: str, rule: Mapping[str, int] | tuple[int, int]) -> SizeRange:
    if not isinstance(rule, Mapping):
        return SizeRange(low=rule[0], high=rule[1])
    given = _keys("sizes", name, rule, ("from", "to", "multiple_of"))
    return SizeRange(low=given.get("from", 1), high=given.get("to"), multiple_of=given.get("multiple_of", 1))


def _index_range(name: str, rule: Mapping[str, Any] | int) -> IndexRange:
    if not isinstance(rule, Mapping):
        return IndexRange(below=rule)
    given = _keys("indices", name, rule, ("below", "special"))
    return IndexRange(below=given.get("below"), special=tuple(given.get("special", ())))


def _keys(option: str, name: str, rule: Mapping[str, Any], known: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the rule; raises ValueError for a key that it cannot have."""
    unknown = next((key for key in rule if key not in known), None)
    if unknown is not None:
        raise ValueError(f"{option}: `{name}` has no {unknown!r}; it may have {', '.join(known)}")
    return rule
