"""`gradverify merge`: the reports of several jobs to one."""

from __future__ import annotations

from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode, UsageProblem
from gradverify.cli.files import LAST_REPORT, keep, read_report
from gradverify.cli.known import Extent, kept_failures, refuse_overlap, settle
from gradverify.cli.outputs import Destinations, check_destinations, refuse_one_for_two, write_outputs
from gradverify.cli.present import exit_code, look_of, present
from gradverify.cli.terminal import complain
from gradverify.report.merge import merge_reports
from gradverify.report.to_json import to_json
from gradverify.report.words import counted


def merge(
    reports: opt.Reports,
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
    """Merge the reports of several jobs into one.

    As those of run --shard; ends as one run of all their cases would, and with 1 when a shard is missing or
    was interrupted.

    Ends with 2 when a file is no report of this version of the format, a case is in two of them, or output could
    not be written.
    """
    look = look_of(no_color=no_color, quiet=quiet, verbose=verbose, durations=durations)
    destinations: Destinations = {"json": json, "junit": junit, "sarif": sarif, "markdown": markdown, "html": html}
    check_destinations(destinations, write_baseline)
    refuse_one_for_two(destinations)
    kept = kept_failures(baseline, write_baseline, None)
    refuse_overlap(kept, destinations)
    merged = merge_reports([(str(path), read_report(path)) for path in reports])
    if not merged.cases:
        raise UsageProblem(f"there is no case in {counted(len(reports), 'report')}")
    settled = settle(merged, kept, Extent.WHOLE)
    keep({LAST_REPORT: to_json(settled.report)})
    lost = [*settled.lost, *write_outputs(settled.report, destinations)]
    present(settled.report, look)
    for told in (*settled.notes, *lost):
        complain(told)
    return ExitCode.USAGE if lost else exit_code(settled.report)
