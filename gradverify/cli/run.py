"""`gradverify run`: verify the cases of specs and say what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gradverify.case import Case
from gradverify.cli import engine
from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.failed import LAST_FAILURES, failed_before, failures_after, still_failing
from gradverify.cli.files import LAST_REPORT, keep
from gradverify.cli.gather import Gathered, gather, refuse_devices_of_no_case, warn_about
from gradverify.cli.known import Extent, Kept, Use, kept_failures, refuse_overlap, settle
from gradverify.cli.listing import Listing, Printer, printing, usual_listing
from gradverify.cli.outputs import Destinations, check_destinations, refuse_one_for_two, write_outputs
from gradverify.cli.present import Look, exit_code, look_of, present
from gradverify.cli.progress import progress
from gradverify.cli.project import project_defaults, with_defaults
from gradverify.cli.request import Request, check_request, memory_of, rerun_options
from gradverify.cli.shard import shard_of
from gradverify.cli.terminal import complain, print_problems, stdout_terminal
from gradverify.report.screen import Detail
from gradverify.report.to_json import to_json
from gradverify.report.words import counted
from gradverify.result import Report
from gradverify.run.interrupts import Interrupts, held_interrupts

if TYPE_CHECKING:
    from gradverify.run.options import Outcome
    from gradverify.run.task import Engine


def run(
    paths: opt.Paths = None,
    check: opt.Checks = None,
    device: opt.Devices = None,
    dtype: opt.Dtypes = None,
    expression: opt.Expression = None,
    last_failed: opt.LastFailed = False,
    shard: opt.ShardName = None,
    workers: opt.Workers = None,
    seed: opt.Seed = None,
    samples: opt.Samples = None,
    timeout: opt.Timeout = None,
    memory: opt.Memory = None,
    torch_gradcheck: opt.Torch = None,
    max_evaluations: opt.Evaluations = None,
    fail_fast: opt.FailFast = False,
    keep_going: opt.KeepGoing = False,
    require_device: opt.RequireDevices = None,
    elements: opt.Elements = None,
    json: opt.Json = None,
    junit: opt.Junit = None,
    sarif: opt.Sarif = None,
    markdown: opt.Markdown = None,
    html: opt.Html = None,
    durations: opt.Durations = None,
    baseline: opt.Known = None,
    write_baseline: opt.WriteKnown = None,
    no_color: opt.NoColour = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> ExitCode:
    """Verify the gradients that specs describe, element by element.

    Defaults may stand in pyproject.toml, under [tool.gradverify].

    Ends with 0 when every case is as expected, 1 when some case is not, 2 when the command or a spec has a mistake or
    output could not be written, 3 for a defect of gradverify itself, and 130 when it was interrupted.
    """
    look = look_of(no_color=no_color, quiet=quiet, verbose=verbose, durations=durations)
    given = Request(
        checks=tuple(check or ()),
        devices=tuple(device or ()),
        dtypes=tuple(dtype or ()),
        seed=seed,
        samples=samples,
        timeout=timeout,
        memory=memory_of(memory),
        shard=None if shard is None else shard_of(shard),
        torch_gradcheck=torch_gradcheck,
        max_elements=elements,
        max_evaluations=max_evaluations,
        workers=workers,
        fail_fast=fail_fast,
        keep_going=keep_going,
        require_devices=tuple(require_device or ()),
    )
    check_request(given)
    defaults = project_defaults()
    request = with_defaults(given, defaults)
    check_request(request)
    destinations: Destinations = {"json": json, "junit": junit, "sarif": sarif, "markdown": markdown, "html": html}
    check_destinations(destinations, write_baseline)
    refuse_one_for_two(destinations)
    kept = kept_failures(baseline, write_baseline, defaults.baseline)
    request = replace(request, known=kept.baseline, rerun=rerun_options(given))
    refuse_overlap(kept, destinations)
    look = replace(look, listing=_listing(look, kept))
    # Torch takes longer to load than the specs to be read.
    with held_interrupts() as interrupts, engine.opened(request.workers) as opened:
        with interrupts.waiting():
            gathered = gather(paths or defaults.paths, expression, request)
            refuse_devices_of_no_case(given.require_devices, gathered)  # a project's default holds for other specs too
            cases = failed_before(gathered.cases) if last_failed else gathered.cases
        return _run(opened, interrupts, gathered, cases, request, kept, destinations, look)


def _run(
    opened: Engine,
    interrupts: Interrupts,
    gathered: Gathered,
    cases: tuple[Case, ...],
    request: Request,
    kept: Kept,
    destinations: Destinations,
    look: Look,
) -> ExitCode:
    printer = Printer(cases, stdout_terminal(look.wish))
    with progress(len(cases), look.listing) as listener:
        if look.listing is Listing.MEANWHILE:
            listener = replace(listener, finished=printing(listener.finished, printer))
        outcome = engine.run(opened, cases, gathered.specs, request, listener, interrupts)
    print_problems(outcome.errors)
    problems = gathered.problems + len(outcome.errors)
    if problems and not outcome.report.cases and not outcome.interrupted:
        raise UsageProblem(f"{counted(problems, 'mistake')} in specs, nothing was run")
    settled = settle(outcome.report, kept, Extent.PART if outcome.interrupted else Extent.WHOLE)
    outcome = replace(outcome, report=_completed(settled.report, request))
    if _has_news(outcome):
        _keep(outcome.report, gathered, request)
    lost = [*settled.lost, *write_outputs(outcome.report, destinations)]  # before the screen: a pipe may end early
    with interrupts.finishing():
        printer.check()
        if _has_news(outcome):
            present(outcome.report, look)
        for note in settled.notes:
            complain(note)
        warn_about(problems)
        for problem in lost:
            complain(problem)
    if outcome.interrupted or interrupts:
        complain(f"interrupted: {len(outcome.report.cases):,} of {counted(len(cases), 'case')} had finished")
        return ExitCode.INTERRUPTED
    return ExitCode.USAGE if problems or lost else exit_code(outcome.report)


def _listing(look: Look, kept: Kept) -> Listing:
    """Return when lines are printed: not before it is known what a baseline that is being written makes of a case."""
    later = look.detail is Detail.QUIET or kept.use is Use.WRITE
    return Listing.AFTERWARDS if later else usual_listing()


def _completed(report: Report, request: Request) -> Report:
    """Return the report with its shard, how its cases are repeated, and what was known of those it did not come to."""
    cases = tuple(replace(case, rerun=request.rerun) for case in report.cases)
    return replace(report, shard=request.shard, cases=cases, not_run=still_failing(report.not_run))


def _has_news(outcome: Outcome) -> bool:
    """Tell whether a run says more than the one before it: not where it was interrupted before anything finished."""
    return bool(outcome.report.cases) or not outcome.interrupted


def _keep(report: Report, gathered: Gathered, request: Request) -> None:
    """Keep the report for `inspect`, and what fails for `--last-failed`."""
    keep({LAST_REPORT: to_json(report), LAST_FAILURES: failures_after(report, gathered, request.checks)})
