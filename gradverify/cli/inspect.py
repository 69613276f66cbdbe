"""`gradverify inspect`: show the wrong elements of the last run."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.files import LAST_REPORT, is_absent, read_report
from gradverify.cli.select import hint_for, named
from gradverify.cli.terminal import ColourWish, say, show, stdout_terminal
from gradverify.report.inspect_view import InspectOptions, Picture, inspect_lines, with_something
from gradverify.report.shards import missing_text
from gradverify.report.words import counted
from gradverify.result import CaseResult


def inspect(
    case: opt.CaseName = None,
    report: opt.ReportFile = None,
    worst: opt.Worst = 20,
    everything: opt.All = False,
    heatmap: opt.Heatmap = False,
    verbose: opt.Reasons = False,
    no_color: opt.NoColour = False,
) -> ExitCode:
    """Show what was not as expected in the last run, and its wrong elements, worst first."""
    if report is None and is_absent(LAST_REPORT):
        raise UsageProblem(f"there is no {LAST_REPORT}: `gradverify run` makes it; or name a report with --report FILE")
    saved = read_report(report or LAST_REPORT)
    cases = saved.cases
    chosen = with_something(cases) if case is None else _named(cases, case)
    if not chosen:
        lacking = missing_text(saved)
        say(f"nothing to look at: {counted(len(cases), 'case')} as expected{f'; {lacking}' if lacking else ''}\n")
        return ExitCode.OK
    options = InspectOptions(
        worst=None if everything else worst,
        picture=Picture.HEATMAP if heatmap else Picture.TABLE,
        reasons=verbose,
    )
    terminal = stdout_terminal(ColourWish.NEVER if no_color else ColourWish.AUTO)
    show(inspect_lines(chosen, terminal.screen, options), terminal)
    return ExitCode.OK


def _named(cases: Sequence[CaseResult], name: str) -> Sequence[CaseResult]:
    found = named(cases, name)
    if not found:
        hint = f"; {hint_for(cases, name)}" if cases else ""
        raise UsageProblem(f"no case {name!r} among the {len(cases):,} of this report{hint}")
    return with_something(found) or found
