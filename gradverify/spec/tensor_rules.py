"""What the keys of one tensor may not say together; each rule yields the issues it finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradverify.case import (
    Bernoulli,
    Constraint,
    Integers,
    Layout,
    Linspace,
    Normal,
    Origin,
    Permutation,
    TensorInput,
    Uniform,
    Values,
)
from gradverify.spec.array import flat
from gradverify.spec.forms import DISTRIBUTIONS, OTHER_SOURCES
from gradverify.spec.readers import Issue
from gradverify.spec.tensor_keys import COMPLEX, DIFFERENTIABLE, TensorModel
from gradverify.spec.wording import misspelt, shown

# Constraints that hold entry by entry survive when values are moved away from a point.
_ENTRYWISE = (Constraint.POSITIVE, Constraint.DISTINCT, Constraint.SYMMETRIC, Constraint.TRIANGULAR)
_PROJECTED = (Constraint.SYMMETRIC, Constraint.POSITIVE_DEFINITE, Constraint.TRIANGULAR)
_SQUARE = (Constraint.SYMMETRIC, Constraint.POSITIVE_DEFINITE)
_MATRIX = (*_SQUARE, Constraint.TRIANGULAR, Constraint.ORTHOGONAL)
_OF_REALS = (Constraint.POSITIVE_DEFINITE, Constraint.SIMPLEX, Constraint.UNIT_NORM, Constraint.ORTHOGONAL)
_LEAST_DIMENSIONS = {Layout.TRANSPOSED: 2, Layout.EXPANDED: 1}


def source_issues(plain: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield what is wrong with the choice of a source, seen from the keys alone."""
    sources = [name for name in (*DISTRIBUTIONS, *OTHER_SOURCES) if name in plain]
    for second in sources[1:]:
        yield Issue(at=(second,), on_key=True, problem=f"only one of `{sources[0]}` and `{second}` can be given")
    known = tuple(TensorModel.model_fields)
    sized = any(name in plain or misspelt(name, plain, known) for name in ("shape", *OTHER_SOURCES))
    if not sized:
        hint = "or `values`, `file` or `factory`" if not sources else ""
        yield Issue(problem="`shape` is missing", hint=hint)
    if "shape" in plain and "factory" in plain:
        yield Issue(at=("shape",), on_key=True, problem="a factory's tensor has a shape of its own")
    if "args" in plain and "factory" not in plain:
        yield Issue(at=("args",), on_key=True, problem="`args` are the arguments of a `factory`, and there is none")


def tensor_issues(tensor: TensorInput, shape: tuple[int, ...] | None) -> Iterator[Issue]:
    """Yield what the values of a tensor's keys contradict; `shape` is None where it is not known yet."""
    for rule in (_dtype, _gradient, _avoid, _constraint_values, _positive, _constrained):
        yield from rule(tensor)
    if shape is not None:
        for shape_rule in (_layout, _constraint_shape, _distinct, _reshaped):
            yield from shape_rule(tensor, shape)


def _dtype(tensor: TensorInput) -> Iterator[Issue]:
    dtype, origin = tensor.dtype, tensor.origin
    if isinstance(origin, Values):
        yield from _dtype_of_values(dtype, flat(origin.values))
    elif isinstance(origin, Normal | Uniform | Linspace) and dtype not in (None, *DIFFERENTIABLE):
        name = type(origin).__name__.lower()
        yield Issue(at=("dtype",), problem=f"`{name}` draws no {dtype}", hint="use `integers` or `bernoulli`")


def _dtype_of_values(dtype: str | None, entries: list[Any]) -> Iterator[Issue]:
    if dtype in (None, "case", *COMPLEX):
        return
    if any(isinstance(entry, str) and entry.endswith("j") for entry in entries):
        yield Issue(at=("dtype",), problem=f"{dtype} holds no complex numbers, and `values` has some")
    elif dtype not in DIFFERENTIABLE and any(_has_fraction(entry) for entry in entries):
        yield Issue(at=("dtype",), problem=f"{dtype} holds whole numbers only, and `values` has others")


def _gradient(tensor: TensorInput) -> Iterator[Issue]:
    if not tensor.requires_grad:
        return
    kind = tensor.dtype or _own_kind(tensor.origin)
    if kind is not None and kind not in DIFFERENTIABLE:
        hint = "" if tensor.dtype else "give it a `dtype`"
        problem = f"only floating and complex tensors have gradients, this one is {kind}"
        yield Issue(at=("requires_grad",), problem=problem, hint=hint)


def _avoid(tensor: TensorInput) -> Iterator[Issue]:
    origin = tensor.origin
    if not tensor.avoid:
        return
    if isinstance(origin, Bernoulli | Permutation):
        yield Issue(at=("avoid",), on_key=True, problem=f"`{_name(origin)}` has no values to leave out")
    if tensor.constraint is not None and tensor.constraint not in _ENTRYWISE:
        yield Issue(
            at=("avoid",), on_key=True, problem=f"cannot be kept together with `constraint: {tensor.constraint}`"
        )
    if isinstance(origin, Integers) and _choices(origin, tensor.avoid) < 1:
        yield Issue(at=("avoid",), problem=f"leaves nothing of integers: [{origin.low}, {origin.high}]")


def _constraint_values(tensor: TensorInput) -> Iterator[Issue]:
    kind = _own_kind(tensor.origin)
    if tensor.constraint in _OF_REALS and kind is not None:
        problem = f"`{tensor.constraint}` needs real values, and these are {kind}"
        yield Issue(at=("constraint",), problem=problem, hint="use `normal` or `uniform`")


def _positive(tensor: TensorInput) -> Iterator[Issue]:
    """Yield a range that goes below zero under `positive`; a range that begins at zero is drawn from its inside."""
    if tensor.constraint is not Constraint.POSITIVE:
        return
    origin = tensor.origin
    lowest: Mapping[type, Callable[[Any], tuple[bool, str]]] = {
        Uniform: lambda it: (it.low < 0, f"uniform: [{shown(it.low)}, {shown(it.high)}]"),
        Linspace: lambda it: (min(it.start, it.end) < 0, f"linspace: [{shown(it.start)}, {shown(it.end)}]"),
        Integers: lambda it: (it.low < 1, f"integers: [{it.low}, {it.high}]"),
        Values: lambda it: (any(_not_positive(entry) for entry in flat(it.values)), "values"),
    }
    contradicts, written = lowest.get(type(origin), lambda _: (False, ""))(origin)
    if contradicts:
        problem = f"`positive`, but `{written}` has values that are not"
        yield Issue(at=("constraint",), problem=problem, hint="leave one of the two out, or begin above 0")


def _not_positive(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool) and entry <= 0


def _constrained(tensor: TensorInput) -> Iterator[Issue]:
    if not tensor.constrained and tensor.constraint not in _PROJECTED:
        yield Issue(at=("constrained",), on_key=True, problem=f"is for `constraint`: {', '.join(_PROJECTED)}")


def _layout(tensor: TensorInput, shape: tuple[int, ...]) -> Iterator[Issue]:
    least = _LEAST_DIMENSIONS.get(tensor.layout, 0)
    if len(shape) < least:
        needs = "one dimension" if least == 1 else "two dimensions"
        yield Issue(at=("layout",), problem=f"`{tensor.layout}` needs at least {needs}, the shape is {list(shape)}")
    if tensor.layout is Layout.CHANNELS_LAST and len(shape) not in (4, 5):
        problem = f"`channels_last` needs four or five dimensions, the shape is {list(shape)}"
        yield Issue(at=("layout",), problem=problem)


def _constraint_shape(tensor: TensorInput, shape: tuple[int, ...]) -> Iterator[Issue]:
    constraint = tensor.constraint
    if constraint in _MATRIX and len(shape) < 2:
        yield Issue(at=("constraint",), problem=f"`{constraint}` needs a matrix, the shape is {list(shape)}")
    elif constraint in _SQUARE and shape[-1] != shape[-2]:
        yield Issue(at=("constraint",), problem=f"`{constraint}` needs a square matrix, the shape is {list(shape)}")
    elif constraint in (Constraint.SIMPLEX, Constraint.UNIT_NORM) and not shape:
        yield Issue(at=("constraint",), problem=f"`{constraint}` needs at least one dimension, the shape is []")


def _distinct(tensor: TensorInput, shape: tuple[int, ...]) -> Iterator[Issue]:
    if tensor.constraint is not Constraint.DISTINCT:
        return
    count, most = math.prod(shape), _most_distinct(tensor, shape)
    if most is not None and count > most:
        problem = f"{count:,} entries of {list(shape)} cannot be distinct: `{_name(tensor.origin)}` has {most:,}"
        yield Issue(at=("constraint",), problem=problem)


def _reshaped(tensor: TensorInput, shape: tuple[int, ...]) -> Iterator[Issue]:
    if isinstance(tensor.origin, Values):
        count = len(flat(tensor.origin.values))
        if count != math.prod(shape):
            entries = "one entry" if math.prod(shape) == 1 else f"{math.prod(shape):,} entries"
            yield Issue(at=("shape",), problem=f"{list(shape)} has {entries}, `values` has {count:,}")


def _most_distinct(tensor: TensorInput, shape: tuple[int, ...]) -> int | None:
    most: Mapping[type, Callable[[Any], int | None]] = {
        Integers: lambda origin: _choices(origin, tensor.avoid),
        Bernoulli: lambda _: 2,
        Permutation: lambda _: shape[-1] if shape else 1,
        Linspace: lambda origin: 1 if origin.start == origin.end else None,
        Normal: lambda origin: 1 if origin.std == 0 else None,
        Values: lambda origin: len({complex(entry) for entry in flat(origin.values)}),
    }
    return most.get(type(tensor.origin), lambda _: None)(tensor.origin)


def _choices(origin: Integers, avoid: tuple[float, ...]) -> int:
    return origin.high - origin.low - len({p for p in avoid if origin.low <= p < origin.high and p.is_integer()})


def _own_kind(origin: Origin) -> str | None:
    """Return the dtype that values have by themselves where it is not a floating one."""
    if isinstance(origin, Integers | Permutation):
        return "int64"
    if isinstance(origin, Bernoulli):
        return "bool"
    if isinstance(origin, Values):
        return _kind_of_values({type(entry) for entry in flat(origin.values)})
    return None


def _kind_of_values(kinds: set[type]) -> str | None:
    if kinds == {bool}:
        return "bool"
    return "int64" if kinds and kinds <= {bool, int} else None


def _has_fraction(entry: Any) -> bool:
    return isinstance(entry, float) and not entry.is_integer()


def _name(origin: Origin) -> str:
    return type(origin).__name__.lower()
