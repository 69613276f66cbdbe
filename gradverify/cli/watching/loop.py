"""The loop of `run --watch`: run, wait for saves and keys, run again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.cli import engine
from gradverify.cli.baseline_file import Extent, OpenBaseline, apply_baseline
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.failed import LAST_FAILURES, failures_after
from gradverify.cli.files import LAST_REPORT, keep
from gradverify.cli.listing import Listing, Printer, planned, usual_listing, with_printing
from gradverify.cli.outputs import Destinations, write_outputs
from gradverify.cli.present import Look, present
from gradverify.cli.progress import progress
from gradverify.cli.request import Request, engine_of
from gradverify.cli.terminal import complain, print_problems, stdout_terminal
from gradverify.cli.watching.files import roots_to_watch, watched
from gradverify.cli.watching.inbox import Ended, Happening, Inbox, Pressed, Saved
from gradverify.cli.watching.keys import has_keys, keys_read
from gradverify.cli.watching.screen import begin, end, reason
from gradverify.cli.watching.state import State, ids, read_specs, unexpected_others, whole_report
from gradverify.concern.concerned import concerned
from gradverify.concern.project import Project
from gradverify.report.screen import Detail
from gradverify.report.terminal import NO_LISTING
from gradverify.report.to_json import to_json
from gradverify.report.words import counted

if TYPE_CHECKING:
    from gradverify.run.options import Outcome
    from gradverify.run.task import Engine

_ROOT_MARKS = (".git", "pyproject.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Everything about `run --watch` that is settled before it begins."""

    paths: tuple[Path, ...] | None
    expression: str | None
    request: Request
    kept: OpenBaseline
    destinations: Destinations
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class _Next:
    """What to do after something happened."""

    title: str = ""  # why, the first line of the screen; "" if nothing is to be done
    notes: tuple[str, ...] = ()
    ended: Ended | None = None


def watch(plan: Watch, first: Sequence[str] | None) -> ExitCode:
    """Run the cases with the ids `first`, or all, and again those that a saved file concerns, until the user ends it.

    Returns what `run` would return for the last results of all cases.
    """
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # bytecode does not tell two saves within a second apart
    here = Path(os.path.realpath(Path.cwd()))
    project = Project(root=_root(here), here=here)
    inbox = Inbox()
    roots = roots_to_watch(project.root, plan.paths or ())
    with (
        inbox.receiving_signals(),
        engine.opened(engine_of(plan.request)) as opened,
        watched(roots, inbox.put),
        keys_read(inbox.put),
    ):
        state = State(read=read_specs(plan.paths, plan.expression, plan.request))
        _refuse_nothing(state, plan)
        state.due = ids(state.read.gathered.cases) if first is None else set(first)
        coming = _Next(title=f"{counted(len(state.due), 'case')}")
        if not has_keys():
            complain(f"watching {roots[0]}; Ctrl-C ends it")
        while coming.ended is None:
            if coming.title:
                _round(plan, state, coming, opened, inbox)
            coming = _after(inbox.take(), plan, state, project)
    if coming.ended.why:
        raise UsageProblem(f"--watch: {coming.ended.why}")
    return _exit_code(state)


def _round(plan: Watch, state: State, coming: _Next, opened: Engine, inbox: Inbox) -> None:
    """Run the cases that are due, and show what came of it."""
    terminal = stdout_terminal(plan.look.wish)
    begin(coming.title, coming.notes, terminal)
    state.last = set(state.due)
    running = {case.spec for case in state.read.gathered.cases if case.id in state.due}
    state.run_errors = tuple(error for error in state.run_errors if error.where.file not in running)
    problems = (*state.read.errors, *state.run_errors)
    print_problems(problems)
    empty = not problems and not state.due
    if state.due:
        opened.renew()
        outcome = _run(plan, state, opened, inbox)
        print_problems(outcome.errors)
        state.run_errors += outcome.errors
        mistaken = {error.where.file for error in outcome.errors}  # what their cases said before no longer holds
        state.results = {name: case for name, case in state.results.items() if case.spec not in mistaken}
        _report(plan, state, outcome)
    end(unexpected_others(state, state.last), len(state.read.gathered.cases), terminal, is_first=empty)
    if not state.due:  # nothing to go on with: the next thing is a wait
        opened.prepare()


def _run(plan: Watch, state: State, opened: Engine, inbox: Inbox) -> Outcome:
    cases = tuple(case for case in state.read.gathered.cases if case.id in state.due)
    look, everything = plan.look, plan.look.detail is Detail.VERBOSE
    printer = Printer(planned(cases, plan.request), stdout_terminal(look.wish), all_skips=everything)
    with inbox.ending_runs() as interrupts, progress(len(cases), look.listing) as listener:
        if look.listing is Listing.MEANWHILE:
            listener = replace(listener, finished=with_printing(listener.finished, printer))
        earlier = {name: result.seconds for name, result in state.results.items()}
        outcome = engine.run(opened, cases, state.read.gathered.specs, plan.request, listener, interrupts, earlier)
    printer.check()
    return outcome


def _report(plan: Watch, state: State, outcome: Outcome) -> None:
    """Remember the results of a run, write the report of all cases, and show that of the run."""
    judged = apply_baseline(outcome.report, plan.kept, Extent.PART)
    cases = tuple(replace(case, rerun=plan.request.rerun) for case in judged.report.cases)
    report = replace(judged.report, cases=cases)
    state.results |= {case.id: case for case in cases}
    state.due -= {case.id for case in cases}
    if not outcome.interrupted:
        state.due.clear()  # with --fail-fast, or after a mistake, the others wait for the next save
    finished = not state.due
    everything = whole_report(report, state)
    keep(
        {
            LAST_REPORT: to_json(everything),
            LAST_FAILURES: failures_after(everything, state.read.gathered, plan.request.checks),
        }
    )
    lost = write_outputs(everything, plan.destinations)
    if finished and (cases or not outcome.errors):
        present(report, plan.look)
    for note in (*judged.notes, *lost):
        complain(note)


def _after(happenings: Sequence[Happening], plan: Watch, state: State, project: Project) -> _Next:
    """Return what to do next, and note in the state which cases are due."""
    keys = {happening.key for happening in happenings if isinstance(happening, Pressed)}
    ended = next((happening for happening in happenings if isinstance(happening, Ended)), None)
    if ended is not None or "q" in keys:
        return _Next(ended=ended or Ended())
    saved = {file for happening in happenings if isinstance(happening, Saved) for file in happening.files}
    coming = _after_saves(saved, plan, state, project) if saved else _Next()
    if "a" in keys:
        state.due = ids(state.read.gathered.cases)
        return _Next(title=f"all: {counted(len(state.due), 'case')}")
    if keys & {"\n", "\r"}:
        state.due |= state.last & ids(state.read.gathered.cases)
        return _Next(title=f"again: {counted(len(state.due), 'case')}")
    if not coming.title and state.due:  # a run was ended by something that means nothing
        return _Next(title=f"going on: {counted(len(state.due), 'case')}")
    return coming


def _after_saves(saved: set[Path], plan: Watch, state: State, project: Project) -> _Next:
    before = state.read
    try:
        state.read = read_specs(plan.paths, plan.expression, plan.request)
    except UsageProblem as problem:  # the folder of specs is gone
        return _Next(title=" ".join(problem.args))
    cases = state.read.gathered.cases
    found = concerned(cases, saved, project)
    appeared = ids(cases) - ids(before.gathered.cases)
    state.due = (state.due & ids(cases)) | ids(found.cases) | appeared
    gone = {spec for spec in before.gathered.written if spec not in state.read.gathered.written}
    state.run_errors = tuple(error for error in state.run_errors if os.path.abspath(error.where.file) not in gone)  # noqa: PTH100
    if not state.due and state.read == before:
        return _Next()
    return _Next(title=reason(saved, len(state.due), len(cases)), notes=found.notes)


def _refuse_nothing(state: State, plan: Watch) -> None:
    """Raise UsageProblem if there is nothing to watch: no path exists, or -k fits no case."""
    read = state.read
    missing = [path for path in plan.paths or () if not os.path.lexists(path)]
    if missing:
        print_problems(read.errors)
        raise UsageProblem("nothing to watch: name a spec or a folder of specs that exists")
    if not read.gathered.cases and not read.errors:
        why = f"-k {plan.expression!r} fits no case" if plan.expression else "the specs hold no case"
        raise UsageProblem(f"nothing to watch: {why}")


def _exit_code(state: State) -> ExitCode:
    if state.read.errors or state.run_errors:
        return ExitCode.USAGE
    current = [state.results[case.id] for case in state.read.gathered.cases if case.id in state.results]
    if any(not case.as_expected for case in current):
        return ExitCode.UNEXPECTED
    return ExitCode.INTERRUPTED if state.due else ExitCode.OK


def _root(here: Path) -> Path:
    """Return the nearest folder, upwards, with a mark of a project, else the working directory."""
    marked = (folder for folder in (here, *here.parents) if any((folder / mark).exists() for mark in _ROOT_MARKS))
    return next(marked, here)


def listing_of(look: Look) -> Look:
    """Return how each run is shown: with a line per case while it runs, if no progress line is drawn."""
    return replace(look, listing=Listing.AFTERWARDS if look.detail in NO_LISTING else usual_listing())
