"""`gradverify list`: list the cases of specs without running them."""

from __future__ import annotations

import sys

from gradverify.cli import options as opt
from gradverify.cli.exits import ExitCode
from gradverify.cli.gather import gather, specs_in, warn_about
from gradverify.cli.missing import list_missing
from gradverify.cli.project import project_defaults, with_defaults
from gradverify.cli.request import Request, check_request, names_of
from gradverify.cli.revision import changed_since as those_changed_since
from gradverify.cli.shard import shard_of
from gradverify.cli.terminal import ColourWish, is_terminal, show, stdout_terminal
from gradverify.report.list_view import case_rows, case_table


def list_cases(
    paths: opt.Paths = None,
    expression: opt.Expression = None,
    *,
    case_filter: opt.CaseFilter,
    samples: opt.Samples = None,
    changed_since: opt.ChangedSince = None,
    shard: opt.ShardName = None,
    keep_going: opt.KeepListing = False,
    missing: opt.Missing = None,
    no_color: opt.NoColour = False,
) -> ExitCode:
    """List the cases of specs.

    A table, or lines with tabs between the columns where stdout is no terminal.

    With --missing, a line for each function of a package that has a gradient and that no spec names; ends with 1 if
    there is one.
    """
    if missing:
        return list_missing(missing, paths)
    given = Request(
        checks=names_of(case_filter.check),
        devices=names_of(case_filter.device),
        dtypes=names_of(case_filter.dtype),
        samples=samples,
        shard=None if shard is None else shard_of(shard),
        keep_going=keep_going,
    )
    check_request(given)
    defaults = project_defaults()
    gathered = gather(specs_in(paths), expression, with_defaults(given, defaults), defaults)
    cases = gathered.cases
    if changed_since is not None:
        settings = () if defaults.baseline is None else (defaults.baseline,)
        cases = those_changed_since(cases, changed_since, settings)
    terminal = stdout_terminal(ColourWish.NEVER if no_color else ColourWish.AUTO)
    table = case_table(cases, terminal.screen) if is_terminal(sys.stdout) else case_rows(cases)
    show(table, terminal)
    warn_about(gathered.problems)
    return ExitCode.USAGE if gathered.problems else ExitCode.OK
