"""Which code belongs to the user, and the expression that a frame of it is evaluating."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

import gradverify

_OURS = f"{Path(gradverify.__file__).parent}{os.sep}"
_BROKEN_LINE = re.compile(r"(?<=[(\[{]) | (?=[)\]}])")  # what a line break inside brackets leaves
_TORCH = f"{Path(torch.__file__).parent}{os.sep}"

IsUserFile = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """An expression in the user's code."""

    file: str
    line: int  # where it starts
    within: str  # the function that it stands in
    text: str  # as written, on one line; "" if the source is not there


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function, below its decorators; None for callables that are not in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, CodeType):
        return function
    try:
        function = inspect.unwrap(function)
    except ValueError:  # a cycle
        return None
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def function_of(function: Any) -> FunctionType | None:
    """Return the function below its decorators; None for anything that is no Python function."""
    try:
        function = inspect.unwrap(function)
    except ValueError:
        return None
    function = getattr(function, "__func__", function)
    return function if isinstance(function, FunctionType) else None


def nested(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions that are written inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def files_of(codes: Iterable[CodeType]) -> IsUserFile:
    """Return a predicate: True for the files of this code, and for others of the same folder or package.

    False for files of torch and gradverify.
    """
    files = {code.co_filename for code in codes if not is_foreign(code.co_filename)}
    folders = {Path(file).parent for file in files if Path(file).is_absolute()}
    folders = {folder for folder in folders if folder.name not in ("site-packages", "dist-packages")}
    packages = tuple({f"{_package(folder)}{os.sep}" for folder in folders if _is_package(folder)})
    known: dict[str, bool] = {}

    def is_user_file(file: str) -> bool:
        if file not in known:
            near = Path(file).parent in folders or file.startswith(packages)
            known[file] = file in files or (near and not is_foreign(file))
        return known[file]

    return is_user_file


def is_foreign(file: str) -> bool:
    """Return True for files of torch and gradverify."""
    return file.startswith((_OURS, _TORCH))


def innermost(frame: FrameType | None, is_user_file: IsUserFile) -> FrameType | None:
    """Return the innermost frame of the user's code above gradverify's, None if there is none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user_file(file):
            return frame
        if file.startswith(_OURS):
            return None
        frame = frame.f_back
    return None


def expression_of(frame: FrameType) -> Expression:
    """Return the expression that a frame is evaluating."""
    code = frame.f_code
    start, end, first, last = next(islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    line = start or frame.f_lineno
    within = name_of(code)
    if start is None or end is None or first is None or last is None:
        text = lines[line - 1].strip() if line <= len(lines) else ""
    else:
        text = _excerpt(lines[start - 1 : end], first, last)
    return Expression(file=code.co_filename, line=line, within=within, text=text)


def name_of(code: CodeType) -> str:
    """Return the name of the function that code stands in; a lambda or comprehension stands in the one around it."""
    names = [name for name in code.co_qualname.split(".<locals>.") if not name.startswith("<")]
    return names[-1].rpartition(".")[2] if names else code.co_name


def _excerpt(lines: list[str], first: int, last: int) -> str:
    """Return the text from column `first` of the first line to column `last` of the last; columns are bytes."""
    rows = [line.encode() for line in lines]
    if not rows:
        return ""
    rows[-1] = rows[-1][:last]
    rows[0] = rows[0][first:]
    text = " ".join(b"".join(rows).decode(errors="replace").split())
    return _BROKEN_LINE.sub("", text)


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


def _package(folder: Path) -> Path:
    """Return the folder of the outermost package that `folder` belongs to."""
    while _is_package(folder.parent):
        folder = folder.parent
    return folder
