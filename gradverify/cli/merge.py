"""`gradverify merge`: merge the reports of several jobs into one."""

from __future__ import annotations

from dataclasses import replace

from gradverify.cli import options as opt
from gradverify.cli.baseline_file import Extent, apply_baseline, open_baseline, refuse_overlap
from gradverify.cli.exits import ExitCode
from gradverify.cli.files import LAST_REPORT, keep, read_report
from gradverify.cli.outputs import destinations_of, listing_of, write_outputs
from gradverify.cli.present import exit_code, look_of, present
from gradverify.cli.terminal import complain
from gradverify.report.merge import merge_reports
from gradverify.report.to_json import to_json


def merge(
    reports: opt.Reports,
    *,
    outputs: opt.Outputs,
    baseline: opt.BaselineFiles,
    screen: opt.Screen,
) -> ExitCode:
    """Merge the reports of several jobs into one.

    As those of run --shard; ends as one run of all their cases would, and with 1 when a shard is missing or
    was interrupted.

    Ends with 2 when a file is no report of this version of the format, a case is in two of them, or output could
    not be written.
    """
    look = look_of(screen)
    destinations = destinations_of(outputs, baseline.write_baseline)
    look = replace(look, listing=listing_of(look.listing, destinations))
    kept = open_baseline(baseline)
    refuse_overlap(kept, destinations)
    merged = merge_reports([(str(path), read_report(path)) for path in reports])
    judged = apply_baseline(merged, kept, Extent.WHOLE)
    keep({LAST_REPORT: to_json(judged.report)})
    lost = [*judged.lost, *write_outputs(judged.report, destinations)]
    present(judged.report, look)
    for told in (*judged.notes, *lost):
        complain(told)
    return ExitCode.USAGE if lost else exit_code(judged.report)
