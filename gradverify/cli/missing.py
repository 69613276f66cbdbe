"""`gradverify list --missing`: the functions of a package that no spec names."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradverify.cli import engine
from gradverify.cli.counting import counting
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.gather import DEFAULT_FOLDER, specs_in
from gradverify.cli.init import nothing_found, tell_local, tell_unread
from gradverify.cli.project import project_defaults
from gradverify.cli.terminal import complain, print_problems, say
from gradverify.report.safe import safe
from gradverify.report.words import counted
from gradverify.run.interrupts import held_interrupts
from gradverify.run.options import EngineOptions


def list_missing(packages: list[str], paths: Sequence[Path] | None) -> ExitCode:
    """Print the functions of packages and paths that no spec in other paths names; UNEXPECTED if there is one.

    So too if a module is no valid Python. If no paths are named, there need not be any spec yet.
    """
    specs = _specs(paths)
    with held_interrupts() as interrupts, engine.opened(EngineOptions()) as opened, counting() as count:
        finding = engine.find(packages, opened, interrupts, lambda done, of: count("modules read", done, of))
    tell_unread(finding)
    tell_local(finding)
    if not finding.functions:
        raise UsageProblem(nothing_found(packages, finding))
    absent = engine.missing(finding, specs)
    say("".join(f"{safe(each.target.written)}\n" for each in absent))
    total = counted(len(finding.functions), "function")
    if absent:
        command = f"gradverify init {shlex.join(packages)}"
        complain(f"{len(absent):,} of {total} in no spec; `{command}` writes specs for them")
        return ExitCode.UNEXPECTED
    complain(f"{total}, each named by a spec")
    return ExitCode.UNEXPECTED if finding.unparsed else ExitCode.OK


def _specs(paths: Sequence[Path] | None) -> Sequence[Any]:
    """Return the specs; none if no paths are named and the default folder is missing or empty."""
    defaults = project_defaults()
    if not (paths or defaults.paths or any(DEFAULT_FOLDER.rglob("*.y*ml"))):
        return ()
    reading = specs_in(paths).read(defaults)
    print_problems(reading.errors)
    if reading.errors:
        raise UsageProblem(f"{counted(len(reading.errors), 'mistake')} in specs, nothing was compared")
    return reading.specs
