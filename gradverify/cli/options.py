"""The options of the commands: their names, help and the heading they stand under, as types for typer.

A class holds options that belong together; a command takes it as one parameter (see `parameters`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gradverify.case import ExploreRules, Settings, TorchGradcheck
from gradverify.catalogue import known_checks
from gradverify.cli.groups import Heading
from gradverify.cli.values import choice, file, folder, seconds, whole
from gradverify.run.options import EngineName


def _option(*flags: str, heading: Heading | None = None, **settings: Any) -> typer.models.OptionInfo:
    option = typer.Option(*flags, rich_help_panel=heading, **settings)
    assert isinstance(option, typer.models.OptionInfo)
    return option


def _several(flag: str, text: str, heading: Heading) -> typer.models.OptionInfo:
    text = f"{text}; several with commas, or by giving it again."
    return _option(flag, metavar="NAME", help=text, show_default=False, heading=heading)


def _number(*flags: str, least: int, text: str, heading: Heading | None = None) -> typer.models.OptionInfo:
    return _option(*flags, metavar="N", parser=whole(least), help=text, heading=heading)


def _file(flag: str, text: str, heading: Heading | None = None) -> typer.models.OptionInfo:
    """Return an option for a file; the command that opens the file reports why it cannot be read or written."""
    return _option(flag, metavar="FILE", parser=file, help=text, heading=heading)


_JOBS = (
    "Worker processes; 0 runs in this one, for a debugger: without time limits, and a crash ends it all."
    "  [default: cores]"
)
_TIME = "Time forward and backward too, beside those of the reference or plain torch; best with -j 1."
_BUDGET = f"Most tries of each case.  [default: what its spec says, else {ExploreRules().budget:,}]"
_EVALUATIONS = (
    "Calls of forward and backward that the search for wrong entries may take in a Jacobian too large to write down."
    f"  [default: {Settings().max_evaluations:,}]"
)

STDOUT = Path("-")  # in place of a file: the report alone goes to stdout

# Options and arguments that a command takes alone, or that several classes below share.
Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH", readable=False, help="Specs, and folders of specs.  [default: specs/]", show_default=False
    ),
]
Packages = Annotated[
    list[str],
    typer.Argument(
        metavar="PACKAGE|PATH", help="Importable packages and modules, .py files, folders of them.", show_default=False
    ),
]
SpecFolder = Annotated[
    Path,
    _option(
        "-o",
        "--output",
        metavar="DIR",
        parser=folder,
        help="The folder for specs; a file that is there is never replaced.",
        heading=Heading.FILES,
    ),
]
Missing = Annotated[
    list[str] | None,
    _option(
        "--missing",
        metavar="PACKAGE",
        help="Instead, list the functions of this package or path that no spec names; may be given several times.",
        show_default=False,
        heading=Heading.CASES,
    ),
]
Jobs = Annotated[int | None, _number("-j", "--jobs", least=1, text="Worker processes.  [default: cores]")]
Reports = Annotated[
    list[Path], typer.Argument(metavar="REPORT", readable=False, help="Reports of run --json.", show_default=False)
]
CaseName = Annotated[
    str | None,
    typer.Argument(metavar="CASE", help="An id, a part of one, or a pattern.  [default: all]", show_default=False),
]
Expression = Annotated[
    str | None,
    _option(
        "-k",
        metavar="EXPR",
        help="Only cases whose id fits: substrings with and, or, not, parentheses.",
        heading=Heading.CASES,
    ),
]
ShardName = Annotated[
    str | None,
    _option(
        "--shard",
        metavar="I/N",
        help="Only part I of N: each case is in exactly one part.",
        heading=Heading.CASES,
    ),
]
ChangedSince = Annotated[
    str | None,
    _option(
        "--changed-since",
        metavar="REV",
        help="Only cases whose spec, code or data differ from this git revision.",
        heading=Heading.CASES,
    ),
]
Watching = Annotated[
    bool,
    _option(
        "--watch",
        help="Go on: run the cases that a saved file concerns, until q or Ctrl-C.",
        heading=Heading.RUNNING,
    ),
]
KeepListing = Annotated[
    bool,
    _option("--keep-going", help="List the cases of the other files when a spec has mistakes.", heading=Heading.CASES),
]
Samples = Annotated[
    int | None, _number("--samples", least=1, text="Independent draws per case.", heading=Heading.SETTINGS)
]
Explore = Annotated[
    bool,
    _option(
        "--explore",
        help="Change the inputs of each case too, in search of one at which its gradient is wrong; "
        "--explore=N is short for --explore --budget N.",
        heading=Heading.OTHER_INPUTS,
    ),
]
SaveFound = Annotated[
    Path | None,
    _option(
        "--save",
        metavar="DIR",
        parser=folder,
        help="Write each input at which a gradient is wrong as a spec into this folder.",
        heading=Heading.OTHER_INPUTS,
    ),
]
TargetName = Annotated[
    str, typer.Argument(metavar="TARGET", help="path.py:Name or package.module:Name.", show_default=False)
]
InputWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME:SHAPE|NAME=VALUE",
        help="The arguments of forward: x:2,3 is a tensor, clip=1.5 a value.",
        show_default=False,
    ),
]
Reference = Annotated[
    str | None,
    _option(
        "--reference",
        metavar="TARGET",
        help="Plain code that outputs and gradients are compared with.",
        heading=Heading.SETTINGS,
    ),
]
Rtol = Annotated[
    str | None,
    _option(
        "--rtol",
        metavar="NUMBER",
        help="How far an entry may be off, relative to its own size, as `rtol` in a spec.  [default: by dtype]",
        heading=Heading.SETTINGS,
    ),
]
Atol = Annotated[
    str | None,
    _option(
        "--atol",
        metavar="NUMBER",
        help="How far any entry may be off, as `atol` in a spec.  [default: by rounding]",
        heading=Heading.SETTINGS,
    ),
]
SaveSpec = Annotated[
    Path | None,
    _file("--save", "Write the spec that says the same; never over a file with other content.", Heading.FILES),
]
NoColour = Annotated[bool, _option("--no-color", help="No colour, also on a terminal.", heading=Heading.SCREEN)]
ReportFile = Annotated[Path | None, _file("--report", "A report of run --json.  [default: the last run]")]
Worst = Annotated[int, _number("--worst", least=1, text="Elements shown of each finding.")]
All = Annotated[bool, _option("--all", help="Every element that was saved.")]
Reasons = Annotated[bool, _option("-v", "--verbose", help="Also say why each element has its verdict.")]
Heatmap = Annotated[bool, _option("--heatmap", help="Draw analytic, numeric and error as a picture too.")]

CommandWords = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="The command to run, with its arguments.", show_default=False),
]
RecordedFolder = Annotated[
    Path, _option("-o", "--output", metavar="DIR", parser=folder, help="Where specs are written to.")
]
KeptValues = Annotated[
    bool,
    _option("--values", help="Keep the values of whole numbers and masks of up to 1 MiB beside the specs."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which of the cases in the specs are run."""

    expression: Expression = None
    last_failed: Annotated[
        bool,
        _option(
            "--last-failed",
            help="Only the cases that were not as expected when they last ran.",
            heading=Heading.CASES,
        ),
    ] = False
    changed_since: ChangedSince = None
    shard: ShardName = None
    keep_going: Annotated[
        bool, _option("--keep-going", help="Run the other files when a spec has mistakes.", heading=Heading.CASES)
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFilter:
    """The checks, devices and dtypes that specs are narrowed to."""

    check: Annotated[
        list[str] | None, _several("--check", f"Only this check ({', '.join(known_checks())})", Heading.SETTINGS)
    ] = None
    device: Annotated[
        list[str] | None, _several("--device", "Only on this device, as cpu or cuda:1", Heading.SETTINGS)
    ] = None
    dtype: Annotated[list[str] | None, _several("--dtype", "Only with this dtype, as float32", Heading.SETTINGS)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSettings:
    """Values in place of those in specs."""

    seed: Annotated[
        int | None, _number("--seed", least=0, text="In place of the specs' seeds.", heading=Heading.SETTINGS)
    ] = None
    samples: Samples = None
    timeout: Annotated[
        float | None,
        _option(
            "--timeout", metavar="SECONDS", parser=seconds, help="Longest time for one case.", heading=Heading.SETTINGS
        ),
    ] = None
    torch_gradcheck: Annotated[
        TorchGradcheck | None,
        _option(
            "--torch-gradcheck",
            metavar="WHEN",
            parser=choice(TorchGradcheck),
            help="Run torch's own check beside: small, always or never.",
            heading=Heading.SETTINGS,
        ),
    ] = None
    max_evaluations: Annotated[
        int | None, _number("--max-evaluations", least=1, text=_EVALUATIONS, heading=Heading.SETTINGS)
    ] = None
    elements: Annotated[
        int | None,
        _number("--elements", least=1, text="Elements saved per finding.  [default: 100]", heading=Heading.FILES),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How cases are run."""

    workers: Annotated[int | None, _number("-j", "--jobs", least=0, text=_JOBS, heading=Heading.RUNNING)] = None
    engine: Annotated[
        EngineName | None,
        _option(
            "--engine",
            metavar="NAME",
            parser=choice(EngineName),
            help="Where cases run: local, on this machine, or ray, on a Ray cluster, of which -j counts the CPUs."
            "  [default: local]",
            heading=Heading.RUNNING,
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        _option(
            "--ray-address",
            metavar="HOST:PORT",
            help="The cluster's head; auto: the one that this machine is in.  [default: auto, else a new one]",
            heading=Heading.RUNNING,
        ),
    ] = None
    time: Annotated[bool, _option("--time", help=_TIME, heading=Heading.RUNNING)] = False
    memory: Annotated[
        str | None,
        _option(
            "--memory",
            metavar="SIZE",
            help="Most memory that a case may take, as 512M or 2G.",
            heading=Heading.RUNNING,
        ),
    ] = None
    fail_fast: Annotated[
        bool,
        _option("-x", "--fail-fast", help="Stop at the first case that is not as expected.", heading=Heading.RUNNING),
    ] = False
    require_device: Annotated[
        list[str] | None,
        _several("--require-device", "A skip for want of this device is not as expected", Heading.EXPECTED),
    ] = None
    no_drafts: Annotated[bool, _option("--no-drafts", help="A draft is not as expected.", heading=Heading.EXPECTED)] = (
        False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherInputs:
    """How the inputs of cases are changed."""

    budget: Annotated[
        int | None,
        _number("--budget", least=1, text=_BUDGET, heading=Heading.OTHER_INPUTS),
    ] = None
    strict: Annotated[
        bool,
        _option(
            "--strict",
            help="Wrong numbers far outside the range of the inputs fail too.",
            heading=Heading.OTHER_INPUTS,
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files that the report is written to; a field is called as its format in `outputs.FORMATS`."""

    json: Annotated[
        Path | None,
        _file("--json", "Write the report as JSON; here and below, - prints it alone on stdout.", Heading.FILES),
    ] = None
    junit: Annotated[Path | None, _file("--junit", "Write the report as JUnit XML.", Heading.FILES)] = None
    sarif: Annotated[Path | None, _file("--sarif", "Write what is not as expected as SARIF 2.1.0.", Heading.FILES)] = (
        None
    )
    markdown: Annotated[
        Path | None, _file("--markdown", "Write a summary as Markdown, for the page of a job.", Heading.FILES)
    ] = None
    html: Annotated[Path | None, _file("--html", "Write the report as one page for a browser.", Heading.FILES)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFiles:
    """The file of known failures, to read or to write; one of the two at most."""

    baseline: Annotated[
        Path | None,
        _file(
            "--baseline",
            "Failures that this file knows are as expected; not with --write-baseline.",
            Heading.EXPECTED,
        ),
    ] = None
    write_baseline: Annotated[
        Path | None,
        _file(
            "--write-baseline",
            "Let this file know what fails, and drop what is fixed; not with --baseline.",
            Heading.EXPECTED,
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """How the report is shown on the terminal."""

    durations: Annotated[
        int | None,
        _number("--durations", least=1, text="List the N cases that took longest.", heading=Heading.SCREEN),
    ] = None
    no_color: NoColour = False
    quiet: Annotated[
        bool,
        _option("-q", "--quiet", help="Only what is not as expected, and the summary.", heading=Heading.SCREEN),
    ] = False
    brief: Annotated[
        bool,
        _option(
            "--brief",
            help="For a program that mends: cause, fix, worst elements, command; cases as expected in one line.",
            heading=Heading.SCREEN,
        ),
    ] = False
    verbose: Annotated[
        bool,
        _option("-v", "--verbose", help="Details of every case, also of those as expected.", heading=Heading.SCREEN),
    ] = False
