"""Change the paths in tasks and results between this machine and a node."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from gradverify.case import Case, DataFile, Exploring, Literal, Target
from gradverify.run.siblings import private_name
from gradverify.run.task import Work
from gradverify.spec.signature import targets_of

_KINDS_OF_NAMES = ("file", "folder")  # of private modules


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Changes the paths of tasks and results between this machine and a node."""

    here: str  # the project's folder on the machine that the command runs on
    there: str  # its copy on the node

    def work(self, work: Work) -> Work:
        """Return a task's work with the node's paths. Paths outside the project stay as they are."""
        moved: Work = _changed(work, lambda path: _below(path, self.here, self.there))
        return moved

    def answer(self, value: Any, work: Work) -> Any:
        """Return the answer to some work, or another value of the same kind, with the paths of this machine.

        `work` is as it was sent, with the paths of this machine. Names of private modules depend on paths too.
        """
        names = dict(self._private_names(work))
        found = pickle.dumps(value)
        if self.there.encode() not in found and not any(name.encode() in found for name in names):
            return value
        swaps = {self.there: self.here, **names}
        return _with_texts(value, lambda text: _swapped(text, swaps))

    def _private_names(self, work: Work) -> list[tuple[str, str]]:
        targets = targets_of(work) if isinstance(work, Case) else (work,) if isinstance(work, Target) else ()
        files = {Path(target.file) for target in targets if target.file is not None}
        pairs = []
        for file in files:
            moved = Path(_below(str(file), self.here, self.there))
            for here, there in ((file, moved), (file.parent, moved.parent)):
                pairs += [(private_name(kind, there), private_name(kind, here)) for kind in _KINDS_OF_NAMES]
        return pairs


def _below(path: str, root: str, other: str) -> str:
    """Return a path below one folder as the same path below another; any other path unchanged."""
    resolved = path if path == root or path.startswith(f"{root}{os.sep}") else os.path.realpath(path)
    if resolved == root or resolved.startswith(f"{root}{os.sep}"):
        return f"{other}{resolved[len(root) :]}"
    return path


def _changed(value: Any, move: Callable[[str], str]) -> Any:
    """Return a value with every path in it moved. Values that users wrote for their functions are no paths."""
    if isinstance(value, Target):
        return value if value.file is None else replace(value, file=move(value.file))
    if isinstance(value, DataFile):
        return replace(value, path=move(value.path))
    if isinstance(value, Exploring):
        return replace(value, folder=move(value.folder)) if value.folder else value
    if isinstance(value, Literal):
        return value
    return _rebuilt(value, lambda part: _changed(part, move))


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str) and not isinstance(value, Enum):
        return change(value)
    return _rebuilt(value, lambda part: _with_texts(part, change))


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a dataclass, tuple, list or mapping with its parts changed; the same object if none is."""
    if is_dataclass(value) and not isinstance(value, type):
        before = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
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
