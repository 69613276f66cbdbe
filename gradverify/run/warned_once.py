"""Each warning of user code once in a run that calls the code many times."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Show a warning of one place and text at its first occurrence in this block only.

    Python's own rule of once per place starts again at every change of filters, of which checks make many.
    """
    with warnings.catch_warnings():
        show, seen = warnings.showwarning, set[tuple[object, ...]]()

        def first_only(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            place = (str(message), category, filename, lineno)
            if place not in seen:
                seen.add(place)
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = first_only
        yield
