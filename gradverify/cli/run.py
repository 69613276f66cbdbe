"""`gradverify run`: verify the cases of specs and report what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.case import Case
from gradverify.cli import engine
from gradverify.cli import options as opt
from gradverify.cli.baseline_file import Extent, OpenBaseline, Use, apply_baseline, open_baseline, refuse_overlap
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.failed import LAST_FAILURES, failed_before, failures_after, still_failing
from gradverify.cli.files import LAST_REPORT, keep
from gradverify.cli.gather import Gathered, Source, gather, refuse_devices_of_no_case, specs_in, warn_about
from gradverify.cli.listing import Listing, Printer, planned, usual_listing, with_printing
from gradverify.cli.outputs import Destinations, destinations_of, listing_of, write_outputs
from gradverify.cli.present import Look, exit_code, look_of, present
from gradverify.cli.progress import progress
from gradverify.cli.project import project_defaults, with_defaults
from gradverify.cli.request import (
    Request,
    check_request,
    engine_of,
    exploring,
    refuse_to_watch,
    refuse_without_exploring,
    requested,
    rerun_options,
)
from gradverify.cli.revision import changed_since
from gradverify.cli.save import save_found
from gradverify.cli.terminal import complain, print_problems, stdout_kept_free, stdout_terminal
from gradverify.report.screen import Detail
from gradverify.report.terminal import NO_LISTING
from gradverify.report.to_json import to_json
from gradverify.report.words import counted
from gradverify.result import Report
from gradverify.run.interrupts import Interrupts, held_interrupts

if TYPE_CHECKING:
    from gradverify.run.options import Outcome
    from gradverify.run.task import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Everything about a run that is settled before its first case starts."""

    cases: tuple[Case, ...]  # to run
    gathered: Gathered
    request: Request
    kept: OpenBaseline
    destinations: Destinations
    look: Look


def run(
    paths: opt.Paths = None,
    explore: opt.Explore = False,
    save: opt.SaveFound = None,
    watch: opt.Watching = False,
    *,
    other_inputs: opt.OtherInputs,
    selection: opt.Selection,
    case_filter: opt.CaseFilter,
    case_settings: opt.CaseSettings,
    execution: opt.Execution,
    outputs: opt.Outputs,
    baseline: opt.BaselineFiles,
    screen: opt.Screen,
) -> ExitCode:
    """Verify the gradients that specs describe, element by element.

    Defaults may stand in pyproject.toml, under [tool.gradverify].

    Ends with 0 when every case is as expected, 1 when some case is not, 2 when the command or a spec has a mistake or
    output could not be written, 3 for a defect of gradverify itself, and 130 when it was interrupted.
    """
    given = requested(case_filter, case_settings, execution, selection, other_inputs)
    if explore:
        given = exploring(given, save)
    else:
        refuse_without_exploring(given, save)
    if watch:
        return watch_specs(paths, given, selection=selection, outputs=outputs, baseline=baseline, screen=screen)
    return verify(specs_in(paths), given, selection=selection, outputs=outputs, baseline=baseline, screen=screen)


def verify(
    source: Source,
    given: Request,
    *,
    selection: opt.Selection | None = None,
    outputs: opt.Outputs,
    baseline: opt.BaselineFiles | None = None,
    screen: opt.Screen,
) -> ExitCode:
    """Run the cases of specs and report what is wrong; `given` is what the options of the command ask for."""
    selection, baseline = selection or opt.Selection(), baseline or opt.BaselineFiles()
    look = look_of(screen)
    defaults = project_defaults()
    request = with_defaults(given, defaults)
    check_request(request)
    destinations = destinations_of(outputs, baseline.write_baseline)
    kept = open_baseline(baseline, defaults.baseline)
    request = replace(request, known=kept.baseline, rerun=(*source.repeated, *rerun_options(given)))
    refuse_overlap(kept, destinations)
    look = replace(look, listing=listing_of(_listing(look, kept), destinations))
    # The engine is opened first: torch loads while the specs are read.
    with held_interrupts() as interrupts, engine.opened(engine_of(request)) as opened:
        with interrupts.waiting():
            gathered = gather(source, selection.expression, request, defaults)
            refuse_devices_of_no_case(given.require_devices, gathered)  # a project's default holds for other specs too
            cases = _selected(gathered.cases, selection, kept, request)
        plan = _Plan(cases=cases, gathered=gathered, request=request, kept=kept, destinations=destinations, look=look)
        return _run(plan, opened, interrupts)


def watch_specs(
    paths: Sequence[Path] | None,
    given: Request,
    *,
    selection: opt.Selection,
    outputs: opt.Outputs,
    baseline: opt.BaselineFiles,
    screen: opt.Screen,
) -> ExitCode:
    """Run the cases of specs, and again those that a saved file concerns, until the user ends it."""
    from gradverify.cli.watching.loop import Watch, listing_of, watch

    defaults = project_defaults()
    request = with_defaults(given, defaults)
    check_request(request)
    refuse_to_watch(request, outputs, baseline.write_baseline)
    kept = open_baseline(baseline, defaults.baseline)
    destinations = destinations_of(outputs, None)
    refuse_overlap(kept, destinations)
    request = replace(request, known=kept.baseline, rerun=rerun_options(given), keep_going=True)
    given_paths = tuple(paths or defaults.paths) or None
    first = None
    if selection.changed_since is not None or selection.last_failed:
        gathered = gather(specs_in(given_paths), selection.expression, request, defaults)
        first = [case.id for case in _selected(gathered.cases, selection, kept, request)]
    plan = Watch(
        paths=given_paths,
        expression=selection.expression,
        request=request,
        kept=kept,
        destinations=destinations,
        look=listing_of(look_of(screen)),
    )
    return watch(plan, first)


def _selected(
    cases: tuple[Case, ...], selection: opt.Selection, kept: OpenBaseline, request: Request
) -> tuple[Case, ...]:
    """Return the cases that --changed-since and --last-failed leave."""
    if selection.changed_since is not None:
        cases = changed_since(cases, selection.changed_since, (kept.path,) if kept.use is not Use.NONE else ())
    return failed_before(cases, explore=request.explore) if selection.last_failed and cases else cases


def _run(plan: _Plan, opened: Engine, interrupts: Interrupts) -> ExitCode:
    everything = plan.look.detail is Detail.VERBOSE
    kept_free = stdout_kept_free() if plan.look.listing is Listing.NEVER else nullcontext()
    printer = Printer(planned(plan.cases, plan.request), stdout_terminal(plan.look.wish), all_skips=everything)
    with kept_free, progress(len(plan.cases), plan.look.listing) as listener:
        if plan.look.listing is Listing.MEANWHILE:
            listener = replace(listener, finished=with_printing(listener.finished, printer))
        outcome = engine.run(opened, plan.cases, plan.gathered.specs, plan.request, listener, interrupts)
    engine.end_workers(opened)  # they end while the report is judged and kept
    print_problems(outcome.errors)
    problems = plan.gathered.problems + len(outcome.errors)
    if problems and not outcome.report.cases and not outcome.interrupted:
        raise UsageProblem(f"{counted(problems, 'mistake')} in {plan.gathered.word}s, nothing was run")
    saved = save_found(outcome.report, plan.request.save)
    judged = apply_baseline(saved.report, plan.kept, Extent.PART if outcome.interrupted else Extent.WHOLE)
    outcome = replace(outcome, report=_completed(judged.report, plan.request))
    if _has_news(outcome) and plan.cases:  # else there is nothing to look at later
        _keep(outcome.report, plan)
    lost = [
        *saved.lost,
        *judged.lost,
        *write_outputs(outcome.report, plan.destinations),
    ]  # before printing: the reader of a pipe may end early
    with interrupts.finishing():
        printer.check()
        if _has_news(outcome):
            present(outcome.report, plan.look)
        for note in judged.notes:
            complain(note)
        warn_about(problems)
        for problem in lost:
            complain(problem)
    if outcome.interrupted or interrupts:
        complain(f"interrupted: {len(outcome.report.cases):,} of {counted(len(plan.cases), 'case')} had finished")
        return ExitCode.INTERRUPTED
    return ExitCode.USAGE if problems or lost else exit_code(outcome.report)


def _listing(look: Look, kept: OpenBaseline) -> Listing:
    """Return when the lines of cases are printed: at the end if a baseline is written, since it may change them."""
    later = look.detail in NO_LISTING or kept.use is Use.WRITE
    return Listing.AFTERWARDS if later else usual_listing()


def _completed(report: Report, request: Request) -> Report:
    """Return the report with its shard, the options to rerun its cases, and earlier failures of cases not run."""
    cases = tuple(replace(case, rerun=request.rerun) for case in report.cases)
    return replace(report, shard=request.shard, cases=cases, not_run=still_failing(report.not_run))


def _has_news(outcome: Outcome) -> bool:
    """False if the run was interrupted before any case finished: then the last report is kept."""
    return bool(outcome.report.cases) or not outcome.interrupted


def _keep(report: Report, plan: _Plan) -> None:
    """Save the report for `inspect`, and the failed cases for `--last-failed`."""
    keep({LAST_REPORT: to_json(report), LAST_FAILURES: failures_after(report, plan.gathered, plan.request.checks)})
