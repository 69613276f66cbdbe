"""`gradverify init`: write a spec for every function of a package that has a gradient written by hand."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli import engine
from gradverify.cli import options as opt
from gradverify.cli.counting import counting
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.files import why_no_folder
from gradverify.cli.gather import DEFAULT_FOLDER
from gradverify.cli.terminal import ColourWish, Terminal, complain, is_terminal, show, stdout_terminal
from gradverify.report.authored_view import (
    AuthoredRow,
    State,
    authored_rows,
    authored_table,
    authored_total,
    inputs_in_brief,
)
from gradverify.report.words import counted
from gradverify.run.interrupts import Interrupts, held_interrupts
from gradverify.run.options import EngineOptions
from gradverify.spec.save import write_whole

if TYPE_CHECKING:
    from gradverify.author.finding.model import Finding, Module
    from gradverify.author.specs import Authored
    from gradverify.run.task import Engine

_UNREAD = 5  # modules that are named
_LOOKED_FOR = (
    "subclasses of torch.autograd.Function with forward and backward, and operators of torch.library or C++ with an"
    " autograd formula"
)
_LEFT_OUT = "tests, setup.py and __main__ are left out"


def init(
    packages: opt.Packages,
    output: opt.SpecFolder = DEFAULT_FOLDER,
    jobs: opt.Jobs = None,
    *,
    no_color: opt.NoColour = False,
) -> ExitCode:
    """Write a spec for every function of a package that has a gradient written by hand.

    Modules are imported in worker processes. The inputs of each function are inferred by trying, until forward and
    backward run; where that fails, the spec is a draft that says why. Ctrl-C ends the trying: the functions that were
    done have their specs, and the same command goes on with the others.

    Ends with 0 when every function has a spec or a draft, with 1 when there is a module that is no valid Python, with 2
    when there is no such package or nothing in it, and with 130 when it was interrupted.
    """
    if why := why_no_folder(output):
        raise UsageProblem(f"-o {output}: {why}")
    with held_interrupts() as interrupts:
        with engine.opened(EngineOptions(workers=jobs)) as opened:
            finding = _found(packages, opened, interrupts)
            if finding is None:
                complain("interrupted while modules were imported; nothing was written")
                return ExitCode.INTERRUPTED
            plan = engine.plan_specs(finding, output)
            with counting() as count:
                authored = engine.author_specs(
                    plan, finding, opened, interrupts, lambda done, of: count("functions tried", done, of)
                )
                rows = [_write(each) for each in authored]
        with interrupts.finishing():
            _show(rows, output, stdout_terminal(ColourWish.NEVER if no_color else ColourWish.AUTO))
    if not interrupts:
        return ExitCode.UNEXPECTED if finding.unparsed else ExitCode.OK
    verb = "was" if len(rows) == 1 else "were"
    complain(
        f"interrupted: {len(rows):,} of {counted(len(plan), 'function')} {verb} done;"
        " the same command goes on with the others"
    )
    return ExitCode.INTERRUPTED


def nothing_found(packages: list[str], finding: Finding) -> str:
    """Return that there is no function with a gradient, and what was looked for."""
    named = ", ".join(packages)
    if not finding.modules:
        return f"{named}: no module to look into; {_LEFT_OUT}"
    looked = counted(finding.modules, "module")
    return f"{named}: no function with a gradient in {looked}; looked for {_LOOKED_FOR}"


def _found(packages: list[str], opened: Engine, interrupts: Interrupts) -> Finding | None:
    """Return the functions of packages, None after an interrupt. Raises UsageProblem if there are none."""
    try:
        with counting() as count:
            finding = engine.find(packages, opened, interrupts, lambda done, of: count("modules read", done, of))
    except KeyboardInterrupt:
        return None
    tell_unread(finding)
    tell_local(finding)
    if not finding.functions:
        raise UsageProblem(nothing_found(packages, finding))
    return finding


def _show(rows: list[AuthoredRow], output: Path, terminal: Terminal) -> None:
    if not rows:
        return
    show(authored_table(rows, terminal.screen) if is_terminal(sys.stdout) else authored_rows(rows), terminal)
    complain(f"{authored_total(rows)}; verify them with `gradverify run {shlex.quote(f'{output.as_posix()}/')}`")


def tell_unread(finding: Finding) -> None:
    """Say why modules could not be imported, each reason once; the functions of the other modules say so themselves."""
    said = {found.module for found in finding.functions}
    unsaid: dict[str, list[tuple[Module, str]]] = {}
    for module, why in finding.unread:
        if module not in said:
            unsaid.setdefault(why.partition(" raised ")[2] or why, []).append((module, why))
    for (module, why), *others in list(unsaid.values())[:_UNREAD]:
        instead = "its functions are not known" if module in finding.unparsed else "its text was read instead"
        text = f"{' '.join(why.split())}; {instead}" if module.shown in why else why
        complain(f"{text} (and {counted(len(others), 'other module')})" if others else text)
    if rest := list(unsaid.values())[_UNREAD:]:
        complain(f"{counted(sum(map(len, rest)), 'more module')} could not be imported")


def tell_local(finding: Finding) -> None:
    """Say where Functions are defined inside functions, one line for each module."""
    for module, number in finding.local:
        them = "it" if number == 1 else "them"
        complain(f"{module.shown}: {counted(number, 'Function')} defined inside a function; no spec can name {them}")


def _write(authored: Authored) -> AuthoredRow:
    state = State.EXISTS if not authored.text else State.DRAFT if authored.reason else State.WRITTEN
    if authored.text:
        _write_new(authored.path, authored.text)
    about = "not replaced" if state is State.EXISTS else authored.reason or inputs_in_brief(authored.inputs)
    return AuthoredRow(function=authored.found.target.written, file=authored.path.as_posix(), state=state, about=about)


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise UsageProblem(f"could not write {path}: {error.strerror or error}") from error
