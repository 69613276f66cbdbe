"""`gradverify run`: verify the cases of specs and say what is wrong."""

from __future__ import annotations

from gradverify.case import Case
from gradverify.cli import engine
from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.files import LAST_REPORT, read_report, save_last
from gradverify.cli.gather import Gathered, gather, warn_about
from gradverify.cli.outputs import Destinations, check_destinations, write_outputs
from gradverify.cli.progress import progress
from gradverify.cli.request import Request, check_request, one_of_two, rerun_options
from gradverify.cli.select import among
from gradverify.cli.terminal import ColourWish, complain, print_problems, show, stdout_terminal
from gradverify.report.case_detail import DetailOptions
from gradverify.report.screen import Detail
from gradverify.report.terminal import report_lines
from gradverify.report.to_json import to_json
from gradverify.report.words import counted
from gradverify.result import Report
from gradverify.serial import ReportError


def run(
    paths: opt.Paths = None,
    check: opt.Checks = None,
    device: opt.Devices = None,
    dtype: opt.Dtypes = None,
    expression: opt.Expression = None,
    last_failed: opt.LastFailed = False,
    workers: opt.Workers = None,
    seed: opt.Seed = None,
    samples: opt.Samples = None,
    timeout: opt.Timeout = None,
    torch_gradcheck: opt.Torch = None,
    fail_fast: opt.FailFast = False,
    keep_going: opt.KeepGoing = False,
    require_device: opt.RequireDevices = None,
    elements: opt.Elements = None,
    json: opt.Json = None,
    no_color: opt.NoColour = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
) -> ExitCode:
    """Verify the gradients that specs describe, element by element.

    Ends with 0 when every case is as expected, 1 when some case is not, 2 when the command or a spec has a mistake.
    """
    one_of_two(("-q", quiet), ("-v", verbose))
    request = Request(
        checks=tuple(check or ()),
        devices=tuple(device or ()),
        dtypes=tuple(dtype or ()),
        seed=seed,
        samples=samples,
        timeout=timeout,
        torch_gradcheck=torch_gradcheck,
        max_elements=elements,
        workers=workers,
        fail_fast=fail_fast,
        keep_going=keep_going,
        require_devices=tuple(require_device or ()),
    )
    check_request(request)
    destinations: Destinations = {"json": json}
    check_destinations(destinations)
    gathered = gather(paths, expression, request)
    cases = _last_failed(gathered.cases) if last_failed else gathered.cases
    detail = Detail.QUIET if quiet else Detail.VERBOSE if verbose else Detail.NORMAL
    wish = ColourWish.NEVER if no_color else ColourWish.AUTO
    return _run(gathered, cases, request, destinations, detail, wish)


def _run(
    gathered: Gathered,
    cases: tuple[Case, ...],
    request: Request,
    destinations: Destinations,
    detail: Detail,
    wish: ColourWish,
) -> ExitCode:
    with progress(len(cases)) as listener:
        outcome = engine.run(cases, gathered.specs, request, listener)
    print_problems(outcome.errors)
    report: Report = outcome.report
    problems = gathered.problems + len(outcome.errors)
    if not report.cases and not outcome.interrupted:
        raise UsageProblem(f"{counted(problems, 'mistake')} in specs, nothing was run")
    _keep(report)
    lost = write_outputs(report, destinations)  # before the screen: a pipe may end early
    terminal = stdout_terminal(wish)
    show(report_lines(report, terminal.screen, DetailOptions(detail=detail, rerun=rerun_options(request))), terminal)
    warn_about(problems)
    for problem in lost:
        complain(problem)
    if outcome.interrupted:
        complain(f"interrupted: {len(report.cases)} of {counted(len(cases), 'case')} had finished")
        return ExitCode.INTERRUPTED
    return _exit_code(report, problems, lost)


def _exit_code(report: Report, problems: int, lost: list[str]) -> ExitCode:
    if problems or lost:
        return ExitCode.USAGE
    return ExitCode.UNEXPECTED if report.summary.unexpected else ExitCode.OK


def _keep(report: Report) -> None:
    """Save the report for `inspect` and `--last-failed`; a folder that cannot be written is worth a warning only."""
    try:
        save_last(to_json(report))
    except OSError as error:
        complain(f"warning: could not write {LAST_REPORT}: {error.strerror or error}")


def _last_failed(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    try:
        report = read_report(LAST_REPORT)
    except ReportError as error:
        complain(f"--last-failed: {error}; running all")
        return cases
    ids = {case.id for case in report.cases if not case.as_expected}
    chosen = among(cases, ids)
    if not ids:
        complain("--last-failed: every case of the last run was as expected; running all")
    elif not chosen:
        complain(f"--last-failed: none of the {counted(len(ids), 'case')} of the last run is among these; running all")
    return chosen or cases
