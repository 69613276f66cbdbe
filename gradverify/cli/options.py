"""The options of the commands: names and help, as types for typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gradverify.case import Settings, TorchGradcheck
from gradverify.catalogue import known_checks
from gradverify.cli.values import choice, file, seconds, whole


def _several(flag: str, metavar: str, text: str) -> typer.models.OptionInfo:
    option = typer.Option(flag, metavar=metavar, help=f"{text}; may be given several times.", show_default=False)
    assert isinstance(option, typer.models.OptionInfo)
    return option


def _file(flag: str, text: str) -> typer.models.OptionInfo:
    """Return an option for a file; why it cannot be read or written is for us to say."""
    option = typer.Option(flag, metavar="FILE", parser=file, help=text)
    assert isinstance(option, typer.models.OptionInfo)
    return option


_JOBS = (
    "Worker processes; 0 runs in this one, for a debugger: without time limits, and a crash ends it all."
    "  [default: cores]"
)
_EVALUATIONS = (
    "Calls of forward and backward that the search for wrong entries may take in a Jacobian too large to write down."
    f"  [default: {Settings().max_evaluations:,}]"
)
Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH", readable=False, help="Specs, and folders of specs.  [default: specs/]", show_default=False
    ),
]
Checks = Annotated[list[str] | None, _several("--check", "NAME", f"Only this check ({', '.join(known_checks())})")]
Devices = Annotated[list[str] | None, _several("--device", "NAME", "Only on this device, as cpu or cuda:1")]
Dtypes = Annotated[list[str] | None, _several("--dtype", "NAME", "Only with this dtype, as float32")]
Expression = Annotated[
    str | None,
    typer.Option("-k", metavar="EXPR", help="Only cases whose id fits: substrings with and, or, not, parentheses."),
]
Workers = Annotated[
    int | None,
    typer.Option("-j", "--jobs", metavar="N", parser=whole(0), help=_JOBS),
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", parser=whole(0), help="In place of the specs' seeds.")]
Samples = Annotated[
    int | None, typer.Option("--samples", metavar="N", parser=whole(1), help="Independent draws per case.")
]
Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", parser=seconds, help="Longest time for one case.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Most memory that a case may take, as 512M or 2G.")
]
ShardName = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Only part I of N: each case is in exactly one part.")
]
Durations = Annotated[
    int | None, typer.Option("--durations", metavar="N", parser=whole(1), help="List the N cases that took longest.")
]
FailFast = Annotated[bool, typer.Option("-x", "--fail-fast", help="Stop at the first case that is not as expected.")]
LastFailed = Annotated[
    bool, typer.Option("--last-failed", help="Only the cases that were not as expected when they last ran.")
]
KeepGoing = Annotated[bool, typer.Option("--keep-going", help="Run the other files when a spec has mistakes.")]
KeepListing = Annotated[
    bool, typer.Option("--keep-going", help="List the cases of the other files when a spec has mistakes.")
]
RequireDevices = Annotated[
    list[str] | None, _several("--require-device", "NAME", "A skip for want of this device is not as expected")
]
Torch = Annotated[
    TorchGradcheck | None,
    typer.Option(
        "--torch-gradcheck",
        metavar="WHEN",
        parser=choice(TorchGradcheck),
        help="Run torch's own check beside: small, always or never.",
    ),
]
Elements = Annotated[
    int | None,
    typer.Option("--elements", metavar="N", parser=whole(1), help="Elements saved per finding.  [default: 100]"),
]
Evaluations = Annotated[
    int | None,
    typer.Option("--max-evaluations", metavar="N", parser=whole(1), help=_EVALUATIONS),
]
Json = Annotated[Path | None, _file("--json", "Write the report as JSON.")]
Sarif = Annotated[Path | None, _file("--sarif", "Write what is not as expected as SARIF 2.1.0.")]
Markdown = Annotated[Path | None, _file("--markdown", "Write a summary as Markdown, for the page of a job.")]
Junit = Annotated[Path | None, _file("--junit", "Write the report as JUnit XML.")]
Known = Annotated[
    Path | None, _file("--baseline", "Failures that this file knows are as expected; not with --write-baseline.")
]
WriteKnown = Annotated[
    Path | None,
    _file("--write-baseline", "Let this file know what fails, and drop what is fixed; not with --baseline."),
]
Html = Annotated[Path | None, _file("--html", "Write the report as one page for a browser.")]
NoColour = Annotated[bool, typer.Option("--no-color", help="No colour, also on a terminal.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Only what is not as expected, and the summary.")]
Reasons = Annotated[bool, typer.Option("-v", "--verbose", help="Also say why each element has its verdict.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Details of every case, also of those as expected.")]

Reports = Annotated[
    list[Path], typer.Argument(metavar="REPORT", readable=False, help="Reports of run --json.", show_default=False)
]
CaseName = Annotated[
    str | None,
    typer.Argument(metavar="CASE", help="An id, a part of one, or a pattern.  [default: all]", show_default=False),
]
ReportFile = Annotated[Path | None, _file("--report", "A report of run --json.  [default: the last run]")]
Worst = Annotated[int, typer.Option("--worst", metavar="N", parser=whole(1), help="Elements shown of each finding.")]
All = Annotated[bool, typer.Option("--all", help="Every element that was saved.")]
Heatmap = Annotated[bool, typer.Option("--heatmap", help="Draw analytic, numeric and error as a picture too.")]
