"""The functions that no spec names. No torch."""

from __future__ import annotations

from collections.abc import Iterable

from gradverify.author.finding.model import Finding, Found
from gradverify.case import Target
from gradverify.run.siblings import resolved


def missing(finding: Finding, named: Iterable[Target]) -> tuple[Found, ...]:
    """Return the functions that are none of these targets.

    A function may be named through its file, its module, or a package above that has it under the same name.
    """
    known = list(named)
    files = {(str(resolved(target.file)), _last(target)) for target in known if target.file is not None}
    modules = {(target.module, _last(target)) for target in known if target.module is not None}
    return tuple(each for each in finding.functions if not _is_named(each, files, modules))


def _is_named(found: Found, files: set[tuple[str, str]], modules: set[tuple[str, str]]) -> bool:
    name = _last(found.target)
    if (found.module.path, name) in files:
        return True
    parts = [] if found.module.name is None else found.module.name.split(".")
    return any((".".join(parts[:count]), name) in modules for count in range(1, len(parts) + 1))


def _last(target: Target) -> str:
    return target.name.rpartition(".")[2]
