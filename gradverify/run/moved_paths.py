"""Change the paths in work and answers between the machine that a command runs on and a node that does its work."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from gradverify.case import Case, DataFile, Exploring, Literal, Target
from gradverify.run.framing import packed
from gradverify.run.quick_pickle import field_names
from gradverify.run.siblings import private_name
from gradverify.run.task import Answer, EngineEvent, PackedWork, Work
from gradverify.spec.signature import targets_of

_WITH_PATHS = ("target", "surrogate", "reference", "inputs", "exploring")  # fields of a Case
_WITHOUT_PATHS = (str, int, float, Enum, Literal)


def received_work(sent: Work | PackedWork) -> Work:
    """Return work unpacked, with the paths of this machine. Paths outside the project stay as they are."""
    if not isinstance(sent, PackedWork):
        return sent

    def moved(value: Any) -> Any:
        return _changed(value, lambda path: _below(path, sent.here, sent.there))

    work = pickle.loads(sent.frame)
    if isinstance(work, Case):
        return replace(work, **{name: moved(getattr(work, name)) for name in _WITH_PATHS})
    return moved(work)  # type: ignore[no-any-return]


def packed_answer(value: Answer | EngineEvent, sent: Work | PackedWork, work: Work) -> bytes:
    """Return what came of work, pickled, with the paths of the machine that sent it.

    `work` is what `received_work` returned. Names of private modules depend on paths too.
    """
    frame = packed(value)
    if not isinstance(sent, PackedWork):
        return frame
    swaps = {sent.there: sent.here}
    for file in _files_of(work):
        swaps[private_name(Path(file))] = private_name(Path(_below(file, sent.there, sent.here)))
    if not any(found.encode() in frame for found in swaps):
        return frame
    return packed(_with_texts(value, lambda text: _swapped(text, swaps)))


def _files_of(work: Work) -> set[str]:
    """Return the files that the functions of some work are in."""
    targets = targets_of(work) if isinstance(work, Case) else (work,) if isinstance(work, Target) else ()
    return {target.file for target in targets if target.file is not None}


def _below(path: str, root: str, other: str) -> str:
    """Return a path below one folder as the same path below another; any other path unchanged."""
    resolved = path if path == root or path.startswith(f"{root}{os.sep}") else os.path.realpath(path)
    if resolved == root or resolved.startswith(f"{root}{os.sep}"):
        return f"{other}{resolved[len(root) :]}"
    return path


def _changed(value: Any, move: Callable[[str], str]) -> Any:
    """Return a value with every path in it moved. Values that users wrote for their functions are no paths."""
    if value is None or isinstance(value, _WITHOUT_PATHS):
        return value
    if isinstance(value, Target):
        return value if value.file is None else replace(value, file=move(value.file))
    if isinstance(value, DataFile):
        return replace(value, path=move(value.path))
    if isinstance(value, Exploring):
        return replace(value, folder=move(value.folder)) if value.folder else value
    return _rebuilt(value, lambda part: _changed(part, move))


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return change(value)
    return _rebuilt(value, lambda part: _with_texts(part, change))


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a dataclass, tuple, list or mapping with its parts changed; the same object if none is."""
    if is_dataclass(value) and not isinstance(value, type):
        before = {name: getattr(value, name) for name in field_names(type(value))}
        after = {name: change(part) for name, part in before.items()}
        return value if all(after[name] is before[name] for name in before) else replace(value, **after)
    if isinstance(value, tuple | list):
        parts = [change(part) for part in value]
        same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if same else type(value)(parts)
    if isinstance(value, dict):
        changed = {key: change(part) for key, part in value.items()}
        return value if all(changed[key] is value[key] for key in value) else changed
    return value


def _swapped(text: str, swaps: dict[str, str]) -> str:
    for found, other in swaps.items():
        if found in text:
            text = text.replace(found, other)
    return text
