"""Say why files cannot be written, keep files for later commands, and read reports."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gradverify.cli.terminal import complain
from gradverify.report.to_json import from_json
from gradverify.result import Report
from gradverify.serial import ReportError
from gradverify.spec.save import write_whole

LAST_REPORT = Path(".gradverify/last.json")
T = TypeVar("T")


def why_unwritable(path: Path) -> str:
    """Return the reason why a file cannot be written, "" if it can."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # a name that is too long, a cycle of links
        return (error.strerror or str(error)).lower()
    folder = path.resolve().parent
    if not folder.is_dir():
        return f"there is no folder {folder}; make it first"
    if path.exists() and not path.is_file():
        return "it is not a file"
    if not os.access(folder, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        return "permission denied"
    return ""


def why_no_folder(path: Path) -> str:
    """Return the reason why no file can be written into a folder, which may have to be made; "" if one can."""
    place = path.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        return f"{place} is not a folder"
    return "" if os.access(place, os.W_OK | os.X_OK) else "permission denied"


def keep(texts: Mapping[Path, str]) -> None:
    """Write files for later commands, in a folder that git ignores. Prints a warning if one cannot be written."""
    for path, text in texts.items():
        try:
            path.parent.mkdir(exist_ok=True)
            ignore = path.with_name(".gitignore")
            if not ignore.exists():
                write_whole(ignore, "*\n")
            write_whole(path, text)
        except OSError as error:
            complain(f"warning: could not write {path}: {error.strerror or error}")
            return


def is_absent(path: Path) -> bool:
    """True if there is no such file. False if it cannot be accessed: reading it reports the error."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def read_report(path: Path) -> Report:
    """Return the report in a file. Raises ReportError that names the file."""
    return read_as(path, from_json)


def read_as(path: Path, parse: Callable[[str], T]) -> T:
    """Return `parse(text)` of a file's text. Raises ReportError that names the file."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except ReportError as error:
        raise ReportError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{path}: not UTF-8 text") from error
    except OSError as error:
        raise ReportError(f"{path}: {(error.strerror or str(error)).lower()}") from error
