"""A change of a case's inputs, and what the changes are made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gradverify.case import Case
from gradverify.core.model.problem import Problem
from gradverify.deadline import Deadline
from gradverify.exploration.inputs import is_fixed, tensor_at, tensor_inputs, with_tensor
from gradverify.exploration.tools import Tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the user's code contains, and what it was seen to compare with at the inputs as written."""

    numbers: tuple[float, ...] = ()  # that tensors were compared with, or that stand in the code
    integers: tuple[int, ...] = ()  # whole numbers in the code: block sizes
    special: tuple[int, ...] = ()  # negative ones that an index may have, as -100 of what is left out
    texts: tuple[str, ...] = ()  # short texts in the code: names of modes
    tested_for_none: frozenset[str] = frozenset()  # local names that the code compares with None
    names_infinity: bool = False  # True if infinity stands in the code


# (the changed case, its problem, tools) -> why the case is not legal, "" if it is; may raise
Rule = Callable[[Case, Problem, Tools], str]
Watching = Callable[[Callable[[], Any]], Any]


def plainly(run: Callable[[], Any]) -> Any:
    """Return `run()`."""
    return run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The case as it was written, with everything that proposals are made from."""

    case: Case
    tools: Tools
    seen: Seen = field(default_factory=Seen)
    deadline: Deadline | None = None  # user code is not called after it
    watching: Watching = plainly  # runs a forward and backward of a try
    overwrites: bool = False  # True if backward changes its cotangent at the inputs as written
    broken: Callable[[], frozenset[str]] = frozenset  # codes of what the contract finds there


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One way to change a case."""

    kind: str  # what is changed: arguments, indices, sizes, …
    phrase: str  # "stride: 1 (was 2)"
    apply: Callable[[Case], Case]  # returns the case itself if there is nothing to change; may raise
    names: tuple[str, ...] = ()  # the inputs that it changes
    rules: tuple[Rule, ...] = ()  # what forward has to be at the changed inputs, beside what the spec declares
    parts: tuple[Change, ...] = ()  # the two changes of a pair
    size: int | None = None  # the new size, if it changes one
    factor: int | None = None  # the new value of an argument that sizes may have to be multiples of
    asks: tuple[str, ...] = ()  # the contract where other code may run, or precision alone of long sums
    to_default: bool = False  # True if it gives an argument the default that forward declares
    far: bool = False  # True if values are far outside the range of the ones written


def edit(
    base: Base, kind: str, path: str, phrase: str, new: Callable[[Tensor], Tensor], *, far: bool = False
) -> Change:
    """Return the change of one tensor's values; `new` gets a copy, and returns values of the same shape."""
    return edits(base, kind, (path,), f"{path}: {phrase}", new, far=far)


def edits(
    base: Base, kind: str, paths: Sequence[str], phrase: str, new: Callable[[Tensor], Tensor], *, far: bool = False
) -> Change:
    """Return the same change of several tensors."""

    def apply(case: Case) -> Case:
        known = tensor_inputs(case)
        for path in paths:
            if path in known:
                values = tensor_at(case, path, base.tools)
                case = with_tensor(case, path, new(values.clone()))
        return case

    return Change(kind=kind, phrase=phrase, apply=apply, names=tuple(paths), far=far)


def floating_paths(base: Base) -> tuple[str, ...]:
    """Return the paths of the floating and complex tensors that may change."""
    return tuple(path for path, tensor in tensors(base).items() if tensor.is_floating_point() or tensor.is_complex())


def tensors(base: Base) -> dict[str, Tensor]:
    """Return the tensors as written that may change, by path."""
    paths = (path for path in tensor_inputs(base.case) if not is_fixed(base.case, path))
    return {path: tensor_at(base.case, path, base.tools) for path in paths}
