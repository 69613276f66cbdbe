"""Describe exceptions of user code in messages: type, text, and the line of the user's code."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import gradverify
from gradverify.errors import EvaluationError
from gradverify.paths import shown_path

_LONGEST = 2000  # characters of an exception's text that are kept
_OURS = Path(gradverify.__file__).resolve().parent
_STANDARD_LIBRARY = Path(os.__file__).resolve().parent


def describe(error: BaseException) -> str:
    """Return `Type: text (file.py:12)`. Never raises, even if str(error) does."""
    original = error.original if isinstance(error, EvaluationError) else error
    text = _text_of(original)
    name = type(original).__name__
    message = f"{name}: {text}" if text else name
    if isinstance(original, SystemExit):
        message = f"SystemExit by sys.exit({text})"
    line = _user_line(original)
    return f"{message} ({line})" if line else message


def _text_of(error: BaseException) -> str:
    try:
        message = error.msg if isinstance(error, SyntaxError) and error.lineno else error  # the line is appended anyway
        text = "".join(["", str(message)])  # a plain str, even if str() returned a subclass
    except BaseException:
        return "its text could not be read"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _user_line(error: BaseException) -> str:
    """Return the innermost line of user code as `file.py:12`, "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{shown_path(error.filename)}:{error.lineno}"
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = [line for _, line in traceback.walk_tb(error.__traceback__)]
    for frame, line in zip(reversed(frames), reversed(lines), strict=True):
        if is_user_file(frame.f_code.co_filename):
            return f"{shown_path(frame.f_code.co_filename)}:{line}"
    return ""


def is_of_user_code(error: BaseException) -> bool:
    """True if the last line that raised is of user code, or of a library that user code called, not gradverify."""
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    last = next((file for file in reversed(files) if is_user_file(file) or is_own_file(file)), "")
    return bool(last) and is_user_file(last)


def own_line(error: BaseException) -> str:
    """Return the innermost line of gradverify's own code as `gradverify/file.py:12`, "" if there is none."""
    lines = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file.resolve().relative_to(_OURS.parent), line) for file, line in lines if is_own_file(str(file))]
    return f"{own[-1][0].as_posix()}:{own[-1][1]}" if own else ""


def defect_text(error: BaseException, when: str = "") -> str:
    """Return the message for an exception of gradverify's own; `when` says what it was doing."""
    return f"gradverify itself raised {describe(error)} in {own_line(error)}{when}: a defect, please report it"


def is_user_file(file: str) -> bool:
    """True if a file is not part of gradverify, of an installed package or of the standard library."""
    if not Path(file).is_absolute() or f"{os.sep}site-packages{os.sep}" in file:
        return False
    return not is_own_file(file) and not Path(file).resolve().is_relative_to(_STANDARD_LIBRARY)


def is_own_file(file: str) -> bool:
    """True if a file is part of gradverify."""
    return Path(file).resolve().is_relative_to(_OURS)
