"""Write specs into a folder, and files as a whole."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSpec:
    """The file of a spec that was saved."""

    path: Path
    is_new: bool  # False if it was there already


def save_spec(folder: Path, name: str, text: str) -> SavedSpec:
    """Write a spec into a folder, as NAME.yaml; raises OSError.

    A file that is there is never replaced: a number is added to the name, unless it says the same but for comments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}.yaml"
        if not os.path.lexists(path):
            write_whole(path, text)
            return SavedSpec(path=path, is_new=True)
        if _says(path, text):
            return SavedSpec(path=path, is_new=False)
        number += 1


def write_whole(path: Path, text: str) -> None:
    """Write `text` to a temporary file and rename it to `path`. If that raises OSError, `path` is unchanged."""
    goal = path.resolve()  # a link stays a link
    temporary = goal.with_name(f".{goal.name[:200]}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(goal)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _says(path: Path, text: str) -> bool:
    try:
        return _without_comments(path.read_text(encoding="utf-8")) == _without_comments(text)
    except (OSError, UnicodeDecodeError):
        return False


def _without_comments(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]
