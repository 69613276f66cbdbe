"""Which files are specs, and their text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gradverify.errors import SpecError, Where
from gradverify.spec.identity import spec_name
from gradverify.spec.limits import MAX_BYTES, MAX_FILES
from gradverify.spec.node import Place, error
from gradverify.spec.wording import meant_file, visible

SUFFIXES = (".yaml", ".yml")
_ROOT_MARKS = ("pyproject.toml", ".git")

# YAML allows no control characters but tab and line ends. The line ends that only YAML 1.1 knows are refused too:
# places would be counted differently than in an editor.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A file to read."""

    path: Path  # as given, or below the folder as given
    location: Path  # absolute
    name: str  # first part of its cases' ids


def find_specs(paths: Sequence[str | Path]) -> tuple[tuple[SpecFile, ...], tuple[SpecError, ...]]:
    """Return every spec that the paths name, each once, and an error for each path that names none."""
    files: dict[Path, SpecFile] = {}
    errors: list[SpecError] = []
    for path in map(Path, paths):
        for found in _specs_of(path):
            if isinstance(found, SpecError):
                errors.append(found)
            elif len(files) < MAX_FILES:
                file = spec_file(found)
                files.setdefault(file.location, file)
            else:
                errors.append(file_error(path, f"more than {MAX_FILES:,} specs", "run a part of them"))
                return tuple(files.values()), tuple(errors)
    return tuple(files.values()), tuple(errors)


def spec_file(path: Path) -> SpecFile:
    """Return a spec's file by its path as given; it need not be there."""
    location = Path(os.path.abspath(path))  # noqa: PTH100 (links are kept)
    return SpecFile(path=path, location=location, name=spec_name(location, project_root(location.parent)))


def read_text(path: Path) -> str | SpecError:
    """Return a spec's text, or what keeps it from being read."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as reason:
        return file_error(path, f"cannot be read: {reason.strerror}")
    if len(data) > MAX_BYTES:
        return file_error(path, f"larger than {MAX_BYTES // 2**20} MiB", "large values belong into a `file:`")
    return decode(data, str(path))


def decode(data: bytes, file: str) -> str | SpecError:
    """Return the text of a spec's bytes, or the first thing in them that no spec may hold."""
    if data.startswith(_WIDE_MARKS):
        return text_error(file, "", "not UTF-8 but UTF-16 or UTF-32", "save the file as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        before = data[: reason.start].decode("utf-8", errors="replace")
        return text_error(file, before, f"not UTF-8: byte 0x{data[reason.start]:02x}", "save the file as UTF-8")
    forbidden = _FORBIDDEN.search(text)
    if forbidden is None:
        return text
    code = f"U+{ord(forbidden.group()):04X}"
    return text_error(file, text[: forbidden.start()], f"the control character {code} is not allowed", "remove it")


def is_file(path: Path) -> bool:
    """Return whether a regular file is there; a path that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def names_in(folder: Path, suffixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the files in a folder that end like this, for hints; none where it cannot be read."""
    try:
        return tuple(sorted(name for name in os.listdir(folder) if name.endswith(suffixes))[:1000])  # noqa: PTH208
    except (OSError, ValueError):
        return ()


def file_error(path: Path, problem: str, hint: str = "") -> SpecError:
    """Return an error about a file as a whole."""
    return text_error(str(path), "", problem, hint)


def text_error(file: str, before: str, problem: str, hint: str) -> SpecError:
    """Return an error at the place that follows the text `before`."""
    lines = _LINE_END.split(before.removeprefix("\ufeff"))
    where = Where(file=visible(file), line=len(lines), column=len(lines[-1]) + 1)
    return error(Place(where=where, path=""), problem, hint)


def project_root(folder: Path) -> Path:
    """Return the nearest folder, upwards from an absolute one, with a mark of a project; else the working directory."""
    upwards = (folder, *folder.parents)
    marked = (each for each in upwards if any(os.path.lexists(each / mark) for mark in _ROOT_MARKS))
    return next(marked, Path.cwd())


def _specs_of(path: Path) -> Iterator[Path | SpecError]:
    if _is_folder(path):
        empty = True
        for found in _walk(path):
            empty = False
            yield found
        if empty:
            hint = "specs end in .yaml or .yml; `gradverify init PACKAGE` writes some"
            yield file_error(path, "no spec in this folder", hint)
    elif is_file(path):
        yield (path if path.suffix in SUFFIXES else file_error(path, "not a spec", "specs end in .yaml or .yml"))
    else:
        yield _no_spec(path)


def _walk(folder: Path) -> Iterator[Path | SpecError]:
    failures: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=failures.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        specs = (Path(root, name) for name in sorted(names) if not name.startswith("."))
        yield from (path if is_file(path) else _no_spec(path) for path in specs if path.suffix in SUFFIXES)
    for failure in failures:
        yield file_error(Path(failure.filename), f"cannot be read: {failure.strerror}")


def _no_spec(path: Path) -> SpecError:
    """Return what is wrong with a path that is neither a file nor a folder."""
    if _is_something(path):
        return file_error(path, "not a regular file")
    if os.path.islink(path):  # noqa: PTH114 (unlike is_symlink, it never raises)
        return file_error(path, "a link that leads nowhere")
    return file_error(path, "no such file or folder", _near(path))


def _near(path: Path) -> str:
    """Return a hint with the file or folder whose name is like the first part of the path that is not there."""
    missing = next((part for part in (path, *path.parents) if _is_folder(part.parent)), path)
    folder, rest = missing.parent, path.relative_to(missing)
    names = _folders_in(folder) + (names_in(folder, SUFFIXES) if missing == path else ())
    complete = {name: folder / name / rest for name in names if _is_something(folder / name / rest)}
    found = complete or {name: folder / name for name in names}
    return meant_file(missing.name, {name: str(file) for name, file in found.items()})


def _folders_in(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in names_in(folder, ("",)) if _is_folder(folder / name) and not name.startswith("."))


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _is_something(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
