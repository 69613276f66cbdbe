"""What an exception of user code is called in a message: its type, its text, and the user's line."""

from __future__ import annotations

import os
import traceback
from functools import lru_cache
from pathlib import Path

import gradverify
from gradverify.errors import EvaluationError

_LONGEST = 2000  # characters of an exception's text that are kept
_OURS = Path(gradverify.__file__).resolve().parent
_STANDARD_LIBRARY = Path(os.__file__).resolve().parent


def describe(error: BaseException) -> str:
    """Return `Type: text (file.py:12)`; never raises, whatever the exception does when it is printed."""
    original = error.original if isinstance(error, EvaluationError) else error
    text = _text_of(original)
    name = type(original).__name__
    said = f"{name}: {text}" if text else name
    if isinstance(original, SystemExit):
        said = f"SystemExit by sys.exit({text})"
    line = _user_line(original)
    return f"{said} ({line})" if line else said


def shown_path(file: str) -> str:
    """Return a path relative to the current directory where it lies below it."""
    try:
        return _relative(file, Path.cwd())
    except OSError:
        return file


@lru_cache(maxsize=256)
def _relative(file: str, folder: Path) -> str:
    path, above = Path(file).resolve(), folder.resolve()
    return str(path.relative_to(above)) if path.is_relative_to(above) else file


def _text_of(error: BaseException) -> str:
    try:
        said = error.msg if isinstance(error, SyntaxError) and error.lineno else error  # the place is named anyway
        text = "".join(["", str(said)])  # a str of ours, even where the exception returns a subclass of str
    except BaseException:
        return "its text could not be read"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _user_line(error: BaseException) -> str:
    """Return the innermost line that is neither gradverify's nor an installed package's, "" where there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{shown_path(error.filename)}:{error.lineno}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
    for frame, line in zip(reversed(frames), reversed(lines), strict=True):
        if is_users(frame.f_code.co_filename):
            return f"{shown_path(frame.f_code.co_filename)}:{line}"
    return ""


def is_users(file: str) -> bool:
    """Tell whether a file is neither gradverify's, nor of an installed package, nor of the standard library."""
    if not Path(file).is_absolute() or f"{os.sep}site-packages{os.sep}" in file:
        return False
    return not is_ours(file) and not Path(file).resolve().is_relative_to(_STANDARD_LIBRARY)


def is_ours(file: str) -> bool:
    """Tell whether a file is gradverify's."""
    return Path(file).resolve().is_relative_to(_OURS)
