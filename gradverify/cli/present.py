"""Show a report on the screen, for `run` and `merge`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from gradverify.cli.exits import ExitCode
from gradverify.cli.github import publish, publish_summary
from gradverify.cli.listing import Listing
from gradverify.cli.options import Screen
from gradverify.cli.request import one_of_two
from gradverify.cli.terminal import ColourWish, show, stdout_terminal
from gradverify.problem import DEFECT
from gradverify.report.case_detail import DetailOptions
from gradverify.report.lines import EMPTY
from gradverify.report.screen import Detail
from gradverify.report.shards import missing_text
from gradverify.report.terminal import lines_after_listing, report_lines
from gradverify.result import CaseResult, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a report is shown."""

    detail: Detail
    wish: ColourWish
    durations: int  # slowest cases listed
    listing: Listing = Listing.AFTERWARDS


def look_of(screen: Screen) -> Look:
    """Return the look that these options ask for; raises UsageProblem."""
    given = {Detail.QUIET: ("-q", screen.quiet), Detail.BRIEF: ("--brief", screen.brief)}
    given[Detail.VERBOSE] = ("-v", screen.verbose)
    for one, other in combinations(given.values(), 2):
        one_of_two(one, other)
    return Look(
        detail=next((detail for detail, (_, asked) in given.items() if asked), Detail.NORMAL),
        wish=ColourWish.NEVER if screen.no_color else ColourWish.AUTO,
        durations=screen.durations or 0,
    )


def present(report: Report, look: Look) -> None:
    """Print a report on stdout, and publish it in a GitHub job."""
    if look.listing is Listing.NEVER:
        publish_summary(report)
        return
    terminal = stdout_terminal(look.wish)
    options = DetailOptions(detail=look.detail)
    if look.listing is Listing.AFTERWARDS:
        show(report_lines(report, terminal.screen, options, look.durations), terminal)
    else:
        rows = lines_after_listing(report, terminal.screen, options, look.durations)
        show([EMPTY, *rows] if report.cases else rows, terminal)
    publish(report)


def exit_code(report: Report) -> ExitCode:
    """Return the exit code for this report: UNEXPECTED if a case is not as expected or a shard is missing.

    DEFECT if gradverify itself raised in a check, or while it changed the inputs of a case.
    """
    if any(_is_defective(case) for case in report.cases):
        return ExitCode.DEFECT
    return ExitCode.UNEXPECTED if report.summary.unexpected or missing_text(report) else ExitCode.OK


def _is_defective(case: CaseResult) -> bool:
    findings = [finding.code for check in case.checks for finding in check.findings]
    return DEFECT in findings or (case.explored is not None and case.explored.broken)
