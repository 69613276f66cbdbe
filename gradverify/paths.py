"""Paths in messages: relative to the folder in which work began, wherever user code moves to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from gradverify.case import Target

_began: ContextVar[Path | None] = ContextVar("_began", default=None)  # None: paths are relative to the current folder


@contextmanager
def shown_from_here() -> Iterator[None]:
    """Show paths relative to the current folder until the block ends, even if user code changes the folder."""
    try:
        here = Path.cwd()
    except OSError:  # the folder was removed
        here = None
    token = _began.set(here)
    try:
        yield
    finally:
        _began.reset(token)


def shown_path(file: str) -> str:
    """Return a path below the folder in which work began as a relative one, any other unchanged."""
    try:
        return _relative(file, _began.get() or Path.cwd())
    except OSError:
        return file


def shown_target(target: Target) -> str:
    """Return a target as `path.py:Name`, with the path as `shown_path` returns it, or as `package.module:Name`."""
    return target.written if target.file is None else f"{shown_path(target.file)}:{target.name}"


@lru_cache(maxsize=256)
def _relative(file: str, folder: Path) -> str:
    path, above = (folder / file).resolve(), folder.resolve()
    return str(path.relative_to(above)) if path.is_relative_to(above) else file
