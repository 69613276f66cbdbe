"""The notes that observed processes have left in a folder, as values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The Function or operator that was called."""

    module: str
    name: str  # in the module, dotted for one inside a class
    file: str = ""  # of the module; "" if it has none
    reason: str = ""  # why no spec can name it, "" if one can


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A module that leads to an operator: as its attribute, or as one of `torch.ops` if it imports torch."""

    module: str
    file: str
    name: str
    defines: bool  # True if the operator belongs to a torch.library.Library of the module


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTensor:
    """A tensor among the arguments of a call."""

    shape: tuple[int, ...]
    dtype: str
    device: str  # its kind, as cuda
    layout: str
    requires_grad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenList:
    """A list or tuple with tensors in it, or the arguments of a `*args` parameter."""

    items: tuple[SeenArgument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSize:
    """A torch.Size."""

    size: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlain:
    """A value that YAML has a word for."""

    value: Any  # as it is written in a spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenOther:
    """A value that YAML has no word for."""

    kind: str  # its type


SeenArgument = SeenTensor | SeenList | SeenSize | SeenPlain | SeenOther


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenValues:
    """The kind of values of one tensor in one call; None for what was not measured."""

    count: int = 0  # of the values that were measured
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None
    tails: float = 0.0  # fourth moment over squared variance: 3 for a normal distribution, 1.8 for a uniform one
    least: int | None = None  # smallest whole number that is not negative
    structure: str = ""  # the constraint of a spec that the values satisfy
    is_finite: bool = True
    is_whole: bool = False  # real numbers that are whole
    repeats: bool = False  # some whole number occurs twice
    is_sorted: bool = False
    is_permutation: bool = False
    entries: tuple[Any, ...] | None = None  # all whole numbers, nested as the dimensions, if they are few


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Calls of one subject with equal shapes, dtypes and other arguments."""

    subject: Subject
    arguments: Mapping[str, SeenArgument]
    calls: int
    values: Mapping[str, tuple[SeenValues, ...]] = field(default_factory=dict)  # by tensor, `xs[1]` for one in a list
    kept: Mapping[str, str] = field(default_factory=dict)  # file with the values of a tensor, likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What all observed processes noted."""

    signatures: tuple[Signature, ...]
    uncounted: Mapping[Subject, int]  # calls with more signatures than are kept apart
    failures: tuple[str, ...]  # messages about calls that could not be noted
    places: Mapping[Subject, tuple[Place, ...]] = field(default_factory=dict)  # of operators in `torch.ops`


def read_notes(folder: Path) -> Notes:
    """Return the notes in a folder; a line that a killed process left unfinished is left out."""
    found: dict[str, Signature] = {}
    uncounted: dict[Subject, int] = {}
    failures: list[str] = []
    places: dict[Subject, tuple[Place, ...]] = {}
    for path in sorted(folder.glob("*.jsonl"), key=_started):
        for signature in _in_file(path, uncounted, failures, places):
            key = repr((signature.subject, signature.arguments))
            found[key] = _joined(found[key], signature) if key in found else signature
    return Notes(signatures=tuple(found.values()), uncounted=uncounted, failures=tuple(failures), places=places)


def _started(path: Path) -> tuple[int, str]:
    """Return the time in the name of a file: processes in the order of their start."""
    _, _, time = path.stem.partition("-")
    return int(time) if time.isdigit() else 0, path.name


def _in_file(
    path: Path, uncounted: dict[Subject, int], failures: list[str], places: dict[Subject, tuple[Place, ...]]
) -> Iterator[Signature]:
    heads: dict[int, Mapping[str, Any]] = {}
    seen: dict[int, list[Mapping[str, Any]]] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "signature" in entry:
            heads[entry["signature"]] = entry
        elif "of" in entry:
            seen.setdefault(entry["of"], []).append(entry)
        elif "failure" in entry:
            failures.append(entry["failure"])
    for number, head in heads.items():
        subject = Subject(**head["subject"])
        places[subject] = (*places.get(subject, ()), *(Place(**each) for each in head["places"]))
        calls = sum(entry["calls"] for entry in seen.get(number, ()))
        if head["other"]:
            uncounted[subject] = uncounted.get(subject, 0) + calls
        elif calls > 0 or number not in seen:  # else all of them raised; without a count, the process was killed
            yield _signature(subject, head["call"], max(calls, 1), seen.get(number, []))


def _signature(subject: Subject, call: Mapping[str, Any], calls: int, seen: list[Mapping[str, Any]]) -> Signature:
    values: dict[str, tuple[SeenValues, ...]] = {}
    kept: dict[str, str] = {}
    for entry in seen:
        for name, found in (entry.get("values") or {}).items():
            values[name] = (*values.get(name, ()), *([] if found is None else [_values(found)]))
        kept = kept or entry.get("kept") or {}
    arguments = {name: _argument(entry) for name, entry in call.items()}
    return Signature(subject=subject, arguments=arguments, calls=calls, values=values, kept=kept)


def _values(found: Mapping[str, Any]) -> SeenValues:
    return SeenValues(
        count=found.get("count", 0),
        low=found.get("low"),
        high=found.get("high"),
        mean=found.get("mean"),
        std=found.get("std"),
        tails=found.get("tails", 0.0),
        least=found.get("least"),
        structure=found.get("structure", ""),
        is_finite=not (found.get("nan") or found.get("inf")),
        is_whole=bool(found.get("whole")),
        repeats=bool(found.get("repeats")),
        is_sorted=bool(found.get("sorted")),
        is_permutation=bool(found.get("permutation")),
        entries=None if found.get("entries") is None else _nested(found["entries"]),
    )


def _nested(entries: list[Any]) -> tuple[Any, ...]:
    return tuple(_nested(each) if isinstance(each, list) else each for each in entries)


def _argument(entry: Mapping[str, Any]) -> SeenArgument:
    if "shape" in entry:
        return SeenTensor(
            shape=tuple(entry["shape"]),
            dtype=entry["dtype"],
            device=entry["device"],
            layout=entry["layout"],
            requires_grad=entry["grad"],
        )
    if "list" in entry:
        return SeenList(items=tuple(map(_argument, entry["list"])))
    if "size" in entry:
        return SeenSize(size=tuple(entry["size"]))
    if "plain" in entry:
        return SeenPlain(value=entry["plain"])
    if "other" in entry:
        return SeenOther(kind=entry["other"])
    return SeenPlain(value=dict(entry))  # {dtype: float32}, {device: cuda}


def _joined(one: Signature, other: Signature) -> Signature:
    names = {**one.values, **other.values}
    return Signature(
        subject=one.subject,
        arguments=one.arguments,
        calls=one.calls + other.calls,
        values={name: (*one.values.get(name, ()), *other.values.get(name, ())) for name in names},
        kept=one.kept or other.kept,
    )
