"""What a parameter may be, the likeliest first: values and shapes of tensors. No torch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradverify.author.inferring.numbers import floats_for, ints_for, words_for
from gradverify.author.inferring.roles import Kind, annotated_kinds, kind_by_name
from gradverify.author.inferring.shapes import index_shapes, label_shapes, mask_shapes, shapes_of
from gradverify.author.inferring.sizes import Shape
from gradverify.author.inferring.uses import Uses

LEFT_OUT: Any = object()  # the value of a parameter that keeps its default
_DRAWN = {Kind.TENSOR, Kind.WEIGHT, Kind.BIAS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One parameter and what is known about it."""

    parameter: inspect.Parameter
    uses: Uses
    is_first: bool
    has_gradient: bool  # False if backward never returns one for it
    made_by: Mapping[str, Any] | None = None  # the factory of an object of the annotated class, as a spec has it

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def is_state(self) -> bool:
        """True for a tensor that forward writes to and backward has no gradient for, such as running statistics."""
        return not self.has_gradient and any(re.fullmatch(r"[a-z]\w*_", each) for each in self.uses.of_tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that an argument may be."""

    cost: int  # the lower, the likelier
    value: Any  # as a spec has it, with sizes by name in `shape`; LEFT_OUT for the default
    departs: bool = False  # from a default that is a value
    guessed: bool = False  # indices or a mask, while neither the name nor the code says that it is one


def kinds_of(subject: Subject) -> dict[Kind, int]:
    """Return the kinds that a parameter may be, each with its cost; OBJECT alone for something that none can make."""
    parameter, uses = subject.parameter, subject.uses
    annotated = annotated_kinds(parameter.annotation)
    named = kind_by_name(parameter.name)
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return {Kind.TENSORS: 0}
    if annotated:
        return _annotated(annotated, named, subject)
    if uses.called:
        return {Kind.MODULE: 0}
    if uses.foreign and not uses.is_tensor:
        return {Kind.MODULE: 0} if named is Kind.MODULE else {Kind.OBJECT: 0}
    if uses.rank is not None or (uses.is_tensor and subject.has_gradient):
        return {_refined(named) or Kind.TENSOR: 0, **({Kind.TENSOR: 1} if named else {})}
    if any(isinstance(each, str) for each in uses.choices):
        return {Kind.TEXT: 0}
    if uses.listed and not uses.is_tensor and _refined(named) is None:
        return {Kind.TENSORS: 0, Kind.TENSOR: 1} if subject.has_gradient else {Kind.SIZE: 0, Kind.TENSORS: 1}
    if subject.is_first and named is None and (subject.has_gradient or not uses.is_tensor):
        return {Kind.TENSOR: 0, Kind.FLOAT: 3, Kind.INT: 3, Kind.TENSORS: 3, Kind.MODULE: 3}
    return _guessed(named, subject)


def choices_of(subject: Subject, base: Shape, table: Mapping[str, int]) -> list[Choice]:
    """Return what a parameter may be where the largest tensor has the shape `base`, the likeliest first."""
    default = subject.parameter.default
    found: list[Choice] = []
    if default is not inspect.Parameter.empty and default is not None:
        found += _from_default(subject, default)
    else:
        for kind, cost in kinds_of(subject).items():
            guessed = kind in (Kind.INDICES, Kind.MASK) and not _may_be_whole(subject)
            values = _values(kind, subject, base, table)
            found += (Choice(cost=cost + more, value=value, guessed=guessed) for more, value in values)
        if default is None:
            kept = Choice(cost=2 if subject.has_gradient else 0, value=LEFT_OUT)  # a bias is better given, a mask not
            found = [kept, *(each for each in found if each.value is not None)]
    found.sort(key=lambda choice: choice.cost)
    cheapest: dict[str, Choice] = {}
    for choice in found:
        cheapest.setdefault(repr(choice.value), choice)
    return list(cheapest.values())


def _may_be_whole(subject: Subject) -> bool:
    named = _refined(kind_by_name(subject.name))
    return subject.uses.may_be_whole or (named is not None and named not in _DRAWN)


def _annotated(annotated: tuple[Kind, ...], named: Kind | None, subject: Subject) -> dict[Kind, int]:
    first = annotated[0]
    if first is not Kind.TENSOR:
        return {kind: 2 * number for number, kind in enumerate(annotated)}
    kinds: dict[Kind, int] = {_refined(named) or Kind.TENSOR: 0}
    kinds.setdefault(Kind.TENSOR, 1)
    if not subject.has_gradient:
        kinds |= {kind: kinds.get(kind, 2) for kind in (Kind.INDICES, Kind.MASK)}
    return kinds | ({Kind.NONE: 4} if Kind.NONE in annotated else {})


def _refined(named: Kind | None) -> Kind | None:
    """Return the kind of tensor that a name stands for, None if it stands for none."""
    return named if named in {*_DRAWN, Kind.INDICES, Kind.LABELS, Kind.MASK} else None


def _guessed(named: Kind | None, subject: Subject) -> dict[Kind, int]:
    if subject.has_gradient:
        rest = {Kind.TENSOR: 0, Kind.FLOAT: 2, Kind.INT: 3, Kind.TENSORS: 3, Kind.BOOL: 3}
    elif subject.uses.is_tensor or subject.uses.indexed:
        rest = {Kind.TENSOR: 1, Kind.INDICES: 1, Kind.MASK: 2}
    elif subject.uses.as_index:
        rest = {Kind.INDICES: 0, Kind.INT: 1, Kind.MASK: 2}
    elif subject.uses.tested:
        rest = {Kind.BOOL: 0, Kind.INT: 1, Kind.FLOAT: 1, Kind.SIZE: 2, Kind.NONE: 2}
    else:
        rest = {Kind.FLOAT: 1, Kind.INT: 1, Kind.BOOL: 2, Kind.TENSOR: 2, Kind.INDICES: 2, Kind.NONE: 2, Kind.MODULE: 3}
    if named is None:
        return rest
    if named in _DRAWN and not subject.has_gradient:
        return rest | {named: 2}
    return {named: 0} | {kind: max(cost, 1) for kind, cost in rest.items() if kind is not named}


def _from_default(subject: Subject, default: Any) -> Iterator[Choice]:
    if isinstance(default, bool):
        yield from (Choice(cost=0, value=default), Choice(cost=2, value=not default, departs=True))
    elif isinstance(default, int | float | str):
        yield Choice(cost=0, value=default)
        if not isinstance(default, str):  # an operator of torch drops arguments that have their default
            other = default + 1 if isinstance(default, int) else 1.5 * default or 0.5
            yield Choice(cost=2, value=other, departs=True)
        words = words_for(subject.name, subject.uses.choices) if isinstance(default, str) else ()
        yield from (Choice(cost=2, value=word, departs=True) for word in words if word != default)
    else:
        yield Choice(cost=0, value=LEFT_OUT)


def _values(kind: Kind, subject: Subject, base: Shape, table: Mapping[str, int]) -> Iterable[tuple[int, Any]]:
    """Yield values of a kind, each with its cost."""
    if kind in _DRAWN:
        more = {"requires_grad": False} if subject.is_state else {}
        rank = 1 if subject.uses.by_entry else subject.uses.rank
        parts = subject.uses.parts
        cut: list[tuple[int, Shape]] = [(0, (*base[:-1], f"{parts} * {base[-1]}"))] if parts and base else []
        shapes = [*cut, *((cost + len(cut), shape) for cost, shape in shapes_of(kind, base))]
        return ((cost, {"shape": shape, **more}) for cost, shape in _of_rank(shapes, rank))
    sizes = [table[size] if isinstance(size, str) else size for size in base] or [1]
    whole: Mapping[Kind, Iterable[tuple[int, Any]]] = {
        Kind.INDICES: index_shapes(base, sizes),
        Kind.LABELS: label_shapes(base, sizes),
        Kind.MASK: mask_shapes(base),
        Kind.TENSORS: _lists(base, subject.uses.count),
        Kind.MODULE: _modules(sizes, table),
        Kind.FLOAT: enumerate(floats_for(subject.name)),
        Kind.INT: enumerate(ints_for(subject.name, sizes)),
        Kind.BOOL: enumerate((_usual_flag(subject.name), not _usual_flag(subject.name))),
        Kind.TEXT: enumerate(words_for(subject.name, subject.uses.choices)),
        Kind.SIZE: [(0, {"size": base}), (1, sizes[-1:]), (1, [1, 1]), *_whole_numbers(base)],
        Kind.DTYPE: [(0, {"dtype": "case"})],
        Kind.DEVICE: [(0, {"device": "case"})],
        Kind.NONE: [(0, None)],
        Kind.OBJECT: [] if subject.made_by is None else [(0, dict(subject.made_by))],
    }
    return whole[kind]


def _of_rank(shapes: list[tuple[int, Shape]], rank: int | None) -> list[tuple[int, Shape]]:
    fitting = [(cost, shape) for cost, shape in shapes if rank is None or len(shape) == rank]
    return fitting or shapes


def _lists(base: Shape, count: int | None) -> list[tuple[int, Any]]:
    whole, last = {"shape": base}, {"shape": base[-1:]}
    counts = (2, 3, 1, 4) if count is None else (count,)
    same = [(number, [whole] * each) for number, each in enumerate(counts)]
    return [*same, *((2 + number, [whole, *[last] * (each - 1)]) for number, each in enumerate(counts) if each > 1)]


def _modules(sizes: list[int], table: Mapping[str, int]) -> list[tuple[int, Any]]:
    linear = {"in_features": sizes[-1], "out_features": table["m"]}
    square = {"in_features": sizes[-1], "out_features": sizes[-1]}
    return [
        (0, {"factory": "torch.nn:Linear", "args": linear}),
        (1, {"factory": "torch.nn:Tanh"}),
        (1, {"factory": "torch.nn:Linear", "args": square}),
    ]


def _whole_numbers(base: Shape) -> list[tuple[int, Any]]:
    """Return lists of numbers or of dimensions, the first of them a permutation."""
    return [(2, [*range(1, len(base)), 0]), (2, [2]), (2, [1]), (2, [0, 1])]


def _usual_flag(name: str) -> bool:
    return name.startswith("train")
