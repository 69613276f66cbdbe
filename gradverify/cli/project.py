"""The defaults that a project keeps in its pyproject.toml, under [tool.gradverify]."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gradverify.case import CASE_DTYPES, TorchGradcheck
from gradverify.catalogue import known_checks
from gradverify.cli.exits import UsageProblem
from gradverify.cli.request import Request
from gradverify.run.size import MOST_MEMORY, size_of, size_text
from gradverify.spec.limits import MAX_SAMPLES
from gradverify.spec.node import dotted
from gradverify.spec.readers import (
    BadValueError,
    Issue,
    Reader,
    bad,
    distinct_list_of,
    expected,
    keyed,
    one_of,
    text,
    whole_between,
)

_FILE = "pyproject.toml"
_TABLE = ("tool", "gradverify")
_MOST = 2**63 - 1
_CALLED = {"jobs": "workers"}  # options whose key has another name


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds where the command line says nothing; fields that `Request` has too are called as they are there."""

    paths: tuple[Path, ...] = ()  # relative to the current folder, wherever the project lies
    baseline: Path | None = None
    checks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seed: int | None = None
    samples: int | None = None
    timeout: float | None = None
    memory: int | None = None
    torch_gradcheck: TorchGradcheck | None = None
    max_elements: int | None = None
    max_evaluations: int | None = None
    workers: int | None = None
    require_devices: tuple[str, ...] = ()


def project_defaults() -> Defaults:
    """Return the defaults of the nearest project upwards that has some; raises UsageProblem."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        table = _table(folder / _FILE)
        if table is not None:
            return _read(table, folder)
    return Defaults()


def with_defaults(request: Request, defaults: Defaults) -> Request:
    """Return the request with defaults where it says nothing."""
    told = {
        field.name: getattr(defaults, field.name)
        for field in fields(Request)
        if hasattr(defaults, field.name) and getattr(request, field.name) in (None, ())
    }
    if request.workers == 0:
        told["memory"] = request.memory  # a limit holds for workers, and somebody wants none this time
    return replace(request, **told)


def _table(path: Path) -> Any:
    """Return what a file says under [tool.gradverify], None where it says nothing."""
    if not os.path.isfile(path):  # noqa: PTH113 (unlike is_file, it never raises)
        return None
    import tomllib

    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise UsageProblem(f"{_shown(path)}: cannot be read: {said}") from error
    for name in _TABLE:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _read(table: Any, folder: Path) -> Defaults:
    try:
        values = keyed(_plain(table), readers_of(folder))
    except BadValueError as error:
        told = [_told(issue) for issue in error.issues]
        raise UsageProblem(f"{_shown(folder / _FILE)}: {'; '.join(told)}") from error
    values["max_elements"] = values.pop("elements", None)
    return Defaults(**values)


def _told(issue: Issue) -> str:
    key = _CALLED.get(str(issue.at[-1])) if issue.on_key else None
    hint = f"did you mean `{key}`?" if key else issue.hint
    return f"{dotted('.'.join(_TABLE), issue.at)}: {issue.problem}{f' ({hint})' if hint else ''}"


def readers_of(folder: Path) -> Mapping[str, Reader[Any]]:
    """Return the keys of the table, each with how it is read in a project's folder."""
    from gradverify.spec.keys import device, seconds  # slow: a project without a table does not need it

    def path(value: Any) -> Path:
        return _shown(folder / text(value))

    return {
        "paths": distinct_list_of(path, "paths"),
        "checks": distinct_list_of(one_of(known_checks()), "checks"),
        "devices": distinct_list_of(device, "devices"),
        "dtypes": distinct_list_of(one_of(CASE_DTYPES), "dtypes"),
        "samples": whole_between(1, MAX_SAMPLES),
        "seed": whole_between(0, _MOST),
        "timeout": seconds,
        "torch_gradcheck": one_of(TorchGradcheck),
        "workers": whole_between(0, _MOST),
        "memory": _memory,
        "elements": whole_between(1, _MOST),
        "max_evaluations": whole_between(1, _MOST),
        "require_devices": distinct_list_of(device, "devices"),
        "baseline": path,
    }


def _memory(value: Any) -> int:
    if not isinstance(value, str):
        raise expected("a size, as '512M' or '2G'", value)
    size = size_of(value)
    if not size:
        raise bad("expected a size above 0, as '512M' or '2G'")
    if size > MOST_MEMORY:
        raise bad(f"expected at most {size_text(MOST_MEMORY)}")
    return size


def _plain(value: Any) -> Any:
    """Return a value of TOML with dates, which no key takes, as text."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return str(value) if isinstance(value, datetime.date | datetime.time) else value


def _shown(path: Path) -> Path:
    return Path(os.path.relpath(path))
