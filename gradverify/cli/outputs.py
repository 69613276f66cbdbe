"""Write a report to files: a format is one line here and one field of `options.Outputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gradverify.catalogue import sections
from gradverify.cli.checkout import current_checkout
from gradverify.cli.exits import UsageProblem
from gradverify.cli.files import why_unwritable
from gradverify.cli.listing import Listing
from gradverify.cli.options import STDOUT, Outputs
from gradverify.cli.terminal import emit
from gradverify.report.ci.junit import to_junit
from gradverify.report.ci.markdown import to_markdown
from gradverify.report.ci.sarif import to_sarif
from gradverify.report.page.to_html import to_html
from gradverify.report.to_json import to_json
from gradverify.result import Report
from gradverify.spec.save import write_whole

# Name of the option without dashes, and the function that returns the file's text.
FORMATS: tuple[tuple[str, Callable[[Report], str]], ...] = (
    ("json", to_json),
    ("junit", to_junit),
    ("sarif", lambda report: to_sarif(report, sections(), current_checkout())),
    ("markdown", to_markdown),
    ("html", to_html),
)

Destinations = Mapping[str, Path | None]  # by the name of the option; None if it was not given

# Suffixes of specs, source and data. If FILE is forgotten after an option, the next path would be overwritten.
_NEVER_A_REPORT = frozenset(
    (
        *(".yaml", ".yml", ".toml", ".cfg", ".ini", ".pt", ".pth", ".npy", ".npz"),
        *(".py", ".pyi", ".pyx", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so"),
    )
)


def destinations_of(outputs: Outputs, baseline: Path | None) -> Destinations:
    """Return the file of each format; raises UsageProblem if one cannot be written later, or should not be.

    `baseline` is checked too: the file that --write-baseline names.
    """
    destinations = {name: getattr(outputs, name) for name, _ in FORMATS}
    _refuse_unwritable(destinations, baseline)
    _refuse_one_for_two(destinations)
    return destinations


def listing_of(usual: Listing, destinations: Destinations) -> Listing:
    """Return NEVER if a report goes to stdout, else the usual listing."""
    return Listing.NEVER if STDOUT in destinations.values() else usual


def write_outputs(report: Report, destinations: Destinations) -> list[str]:
    """Write the report to every given file, or to stdout; return a message for each file that could not be written."""
    problems: list[str] = []
    for name, render in FORMATS:
        path = destinations.get(name)
        if path is None:
            continue
        try:
            if path == STDOUT:
                emit(render(report))
            else:
                write_whole(path, render(report))
        except OSError as error:
            problems.append(f"could not write {path}: {error.strerror or error}")
    return problems


def _refuse_unwritable(destinations: Destinations, baseline: Path | None) -> None:
    reports = {name: path for name, path in destinations.items() if path is not None and path != STDOUT}
    obstacles = [(path, why_unwritable(path) or _why_no_report(name, path)) for name, path in reports.items()]
    obstacles += [(baseline, why_unwritable(baseline))] if baseline is not None else []
    problems = [f"cannot write {path}: {why}" for path, why in obstacles if why]
    if problems:
        raise UsageProblem(*problems)


def _why_no_report(name: str, path: Path) -> str:
    """Return the reason why a file should not be overwritten by a report, "" if it may be."""
    for file in (path, path.resolve()):  # a link is followed when it is written
        if (suffix := file.suffix.lower()) in _NEVER_A_REPORT:
            return f"a report does not end in {suffix}, as specs, source or data do; name its file after --{name}"
    return ""


def _refuse_one_for_two(destinations: Destinations) -> None:
    """Raise UsageProblem if two formats name the same file."""
    seen: dict[Path, str] = {}
    for name, path in destinations.items():
        if path is None:
            continue
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise UsageProblem(f"--{other} and --{name} both name {path}")
