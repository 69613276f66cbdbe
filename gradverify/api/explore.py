"""`explore`: change the inputs of a function in search of one at which its gradient is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.api.explore_rules import explore_rules, named_sizes, sizes_of_names
from gradverify.api.verify import common_dtype, names_of, printed_width, require
from gradverify.case import (
    Case,
    DtypeArgument,
    Exploring,
    Input,
    ListInput,
    Literal,
    Target,
    TensorInput,
    Trying,
    TupleArgument,
    Values,
)
from gradverify.core.model.coordinates import is_special, why_unreadable
from gradverify.core.model.generators import restored_generators
from gradverify.exploration.inputs import described
from gradverify.paths import shown_from_here
from gradverify.report.explored_view import exploration_text
from gradverify.report.notebook import exploration_html
from gradverify.result import Exploration
from gradverify.run.exploring import explored
from gradverify.run.signature import forward_parameters
from gradverify.run.unobserved import unobserved

_CHECKS = ("gradcheck", "gradgradcheck", "contract")
_REFERENCE = "reference"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Explored(Exploration):
    """An exploration that prints as the screen shows it, and shows tables and heat maps in a notebook."""

    def __str__(self) -> str:
        return exploration_text(self, printed_width())

    def _repr_html_(self) -> str:
        return exploration_html(self)


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
    checks: Sequence[str] | None = None,
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

    `checks` are those that a try may fail: of "gradcheck", "gradgradcheck", "contract" and "reference", by default the
    first three, and with a `reference` all four. The contract is asked where a flag, a text or None has changed, and
    where backward writes into its cotangent.

    The result is true if there is no failure. It has `failures`, `extremes` (wrong numbers far outside the range of the
    inputs) and `questions` (forward runs, backward raises), and the number of `tries`. The same arguments give the same
    result. `print` shows it as the screen does, a notebook as tables with heat maps. Everything runs in this process: a
    try that crashes ends it.

    Raises what `verify` raises for arguments that it cannot take, and ValueError for a budget below 1, for rules about
    names that are not there, and for `names` other than those of forward's parameters.
    """
    _require_arguments(function, inputs, checks, budget)
    called = names_of(function, tuple(inputs), names)
    parameters = tuple(each.name for each in forward_parameters(function) or ())
    _require_own_names(function, called, names)
    given = dict(zip(called, inputs, strict=True))
    floating = [value for value in _tensors(inputs) if value.is_floating_point() or value.is_complex()]
    dtype = common_dtype(floating)
    asked = (*((_REFERENCE,) if reference is not None else ()), *_CHECKS) if checks is None else tuple(checks)
    if _REFERENCE in asked and reference is None:
        raise ValueError("checks: `reference` compares with a reference, and there is none")
    shown = named_sizes(given, dims)
    found_sizes = sizes_of_names(given, shown)
    case = Case(
        id=getattr(function, "__name__", type(function).__name__),
        draw_key="explore",
        spec="",
        line=0,
        target=_target_of(function),
        reference=None if reference is None else _target_of(reference),
        inputs=_spread(function, {name: _described(value, dtype, shown.get(name)) for name, value in given.items()}),
        checks=asked,
        dtype=dtype,
        device=str(floating[0].device) if floating else "cpu",
        seed=seed,
        dims=found_sizes,
        explore=explore_rules(
            tuple(dict.fromkeys((*given, *parameters))),
            found_sizes,
            sizes=sizes,
            ranges=ranges,
            indices=indices,
            choices=choices,
            require=require,
            fixed=fixed,
            budget=budget,
        ),
    )
    gpus = tuple(sorted({value.device.index or 0 for value in floating if value.is_cuda}))
    with restored_generators(gpus), _one_thread(), shown_from_here(), unobserved():
        found = explored(case, function, reference, Exploring(budget=budget), _ignored)
    return Explored(**{field.name: getattr(found, field.name) for field in fields(found)})


def _require_arguments(function: Any, inputs: Any, checks: Sequence[str] | None, budget: Any) -> None:
    require(function, inputs, checks)
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise ValueError(f"budget: expected a number of tries above zero, found {budget!r}")


def _require_own_names(function: Any, called: Sequence[str], names: Sequence[str] | None) -> None:
    """Raise ValueError for names other than those of forward's parameters, if it has any."""
    own = called if names is None or forward_parameters(function) is None else names_of(function, tuple(called), None)
    if tuple(own) != tuple(called):
        raise ValueError(f"names: forward calls its inputs {', '.join(own)}; found {', '.join(called)}")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: tries are many small calls, and sums then round as in a run from the command line."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    if isinstance(value, torch.dtype):
        return DtypeArgument(name=str(value).removeprefix("torch."))
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
    return found if sizes is None else replace(found, shape=tuple(value.shape), sizes=sizes)
