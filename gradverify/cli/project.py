"""Read a project's defaults from its pyproject.toml, table [tool.gradverify]."""

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
from gradverify.run.options import EngineName
from gradverify.size import MOST_MEMORY, size_of, size_text
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
_MAX_INTEGER = 2**63 - 1
_OTHER_NAMES = {"jobs": "workers"}  # by option: the key, if its name differs


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults for options that are not given. Fields that `Request` has too have the same names."""

    paths: tuple[Path, ...] = ()  # relative to the current folder
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
    engine: EngineName | None = None
    address: str | None = None
    require_devices: tuple[str, ...] = ()


def project_defaults() -> Defaults:
    """Return the defaults of the nearest parent folder that has the table. Raises UsageProblem."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        table = _table(folder / _FILE)
        if table is not None:
            return _read(table, folder)
    return Defaults()


def with_defaults(request: Request, defaults: Defaults) -> Request:
    """Return the request with defaults for values that were not given."""
    defaults_used = {
        field.name: getattr(defaults, field.name)
        for field in fields(Request)
        if hasattr(defaults, field.name) and getattr(request, field.name) in (None, ())
    }
    if request.workers == 0:
        defaults_used["memory"] = request.memory  # the limit applies to workers only, and -j 0 uses none
    if (request.engine or defaults.engine) is not EngineName.RAY:
        defaults_used["address"] = request.address  # likewise, without a cluster
    return replace(request, **defaults_used)


def _table(path: Path) -> Any:
    """Return the table [tool.gradverify] of a file, None if there is none."""
    if not os.path.isfile(path):  # noqa: PTH113 (unlike is_file, it never raises)
        return None
    import tomllib

    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageProblem(f"{_shown(path)}: cannot be read: {reason}") from error
    for name in _TABLE:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _read(table: Any, folder: Path) -> Defaults:
    try:
        values = keyed(_plain(table), readers_of(folder))
    except BadValueError as error:
        messages = [_message(issue) for issue in error.issues]
        raise UsageProblem(f"{_shown(folder / _FILE)}: {'; '.join(messages)}") from error
    values["max_elements"] = values.pop("elements", None)
    values["address"] = values.pop("ray_address", None)
    return Defaults(**values)


def _message(issue: Issue) -> str:
    key = _OTHER_NAMES.get(str(issue.at[-1])) if issue.on_key else None
    hint = f"did you mean `{key}`?" if key else issue.hint
    return f"{dotted('.'.join(_TABLE), issue.at)}: {issue.problem}{f' ({hint})' if hint else ''}"


def readers_of(folder: Path) -> Mapping[str, Reader[Any]]:
    """Return the reader of each key; paths are relative to `folder`."""
    from gradverify.spec.keys import device, seconds  # a slow import, not needed without a table

    def path(value: Any) -> Path:
        return _shown(folder / text(value))

    return {
        "paths": distinct_list_of(path, "paths"),
        "checks": distinct_list_of(one_of(known_checks()), "checks"),
        "devices": distinct_list_of(device, "devices"),
        "dtypes": distinct_list_of(one_of(CASE_DTYPES), "dtypes"),
        "samples": whole_between(1, MAX_SAMPLES),
        "seed": whole_between(0, _MAX_INTEGER),
        "timeout": seconds,
        "torch_gradcheck": one_of(TorchGradcheck),
        "workers": whole_between(0, _MAX_INTEGER),
        "engine": one_of(EngineName),
        "ray_address": text,
        "memory": _memory,
        "elements": whole_between(1, _MAX_INTEGER),
        "max_evaluations": whole_between(1, _MAX_INTEGER),
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
    """Return a value of TOML with dates as text, since no key takes a date."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return str(value) if isinstance(value, datetime.date | datetime.time) else value


def _shown(path: Path) -> Path:
    return Path(os.path.relpath(path))
