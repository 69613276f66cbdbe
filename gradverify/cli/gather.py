"""Read specs, expand them and select cases, for `run` and `list`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradverify.case import Case
from gradverify.cli import engine
from gradverify.cli.exits import UsageProblem
from gradverify.cli.project import Defaults
from gradverify.cli.request import Request
from gradverify.cli.select import hint_for, matching
from gradverify.cli.shard import part_of
from gradverify.cli.terminal import complain, print_problems
from gradverify.report.words import counted
from gradverify.result import Shard

if TYPE_CHECKING:
    from gradverify.spec.read import Reading

DEFAULT_FOLDER = Path("specs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a command has its specs from."""

    read: Callable[[Defaults], Reading]
    word: str = "spec"  # what mistakes are in
    repeated: tuple[str, ...] = ()  # words of `gradverify check` that repeat a case which is in no file


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The specs and the selected cases of the given paths."""

    specs: tuple[Any, ...]  # passed on to the runner
    cases: tuple[Case, ...]  # selected by -k and --shard; none if the shard is empty
    problems: int  # mistakes in specs, already printed
    devices: tuple[str, ...]  # of all cases, also of those not selected
    written: Mapping[str, Collection[str]]  # by the spec's absolute path: SPEC/CASE of all its cases
    word: str = "spec"  # what mistakes are in, as in Source


def paths_or_default(paths: Sequence[Path] | None) -> tuple[Path, ...]:
    """Return the given paths, or the folder `specs` if none are given. Raises UsageProblem if it does not exist."""
    if paths:
        return tuple(paths)
    if os.path.isdir(DEFAULT_FOLDER):  # noqa: PTH112 (unlike is_dir, it never raises)
        return (DEFAULT_FOLDER,)
    raise UsageProblem(
        "nothing to run: name a spec or a folder of specs (without one, ./specs/ is taken);"
        " `gradverify init PACKAGE` writes specs"
    )


def specs_in(paths: Sequence[Path] | None) -> Source:
    """Return the specs in files and folders, by default those that the project names, else those in ./specs/."""
    return Source(read=lambda defaults: engine.read(paths_or_default(paths or defaults.paths)))


def gather(source: Source, expression: str | None, request: Request, defaults: Defaults) -> Gathered:
    """Read and expand specs and select cases. Prints mistakes in specs. Raises UsageProblem if no case is left."""
    reading = source.read(defaults)
    print_problems(reading.errors)
    problems = len(reading.errors)
    if problems and not (request.keep_going and reading.specs):
        hint = "" if request.keep_going or not reading.specs else "; --keep-going leaves these files out"
        raise UsageProblem(f"{counted(problems, 'mistake')} in {source.word}s, nothing was run{hint}")
    cases = engine.expand(reading.specs, request)
    if not cases:
        raise UsageProblem("nothing to run: the specs hold no case that --check, --device and --dtype leave")
    selected = _in_shard(_selected(cases, expression), request.shard)
    devices = tuple(dict.fromkeys(case.device for case in cases))
    written = engine.written_cases(reading.specs)
    return Gathered(
        specs=reading.specs, cases=selected, problems=problems, devices=devices, written=written, word=source.word
    )


def refuse_devices_of_no_case(required: Sequence[str], gathered: Gathered) -> None:
    """Raise UsageProblem if no case uses a required device: then no skip could show that the device is missing."""
    for name in required:
        if not any(name in (device, device.partition(":")[0]) for device in gathered.devices):
            there = f"all cases are for {', '.join(gathered.devices)}"
            hint = f"name it under `devices` in a spec, or with --device {name}"
            raise UsageProblem(f"--require-device {name}: no case runs on it, {there}; {hint}")


def _selected(cases: tuple[Case, ...], expression: str | None) -> tuple[Case, ...]:
    if expression is None:
        return cases
    chosen = matching(cases, expression)
    if not chosen:
        hint = hint_for(cases, expression)
        raise UsageProblem(f"nothing to run: -k {expression!r} fits no case ({len(cases):,} in all); {hint}")
    return chosen


def _in_shard(cases: tuple[Case, ...], shard: Shard | None) -> tuple[Case, ...]:
    """Return the cases of a shard. An empty shard prints a message; with few cases it is no mistake."""
    if shard is None:
        return cases
    part = part_of(cases, shard)
    if not part:
        complain(f"--shard {shard}: no case is in this part ({len(cases):,} in all)")
    return part


def warn_about(problems: int) -> None:
    """Print at the end of the run that files with mistakes were left out."""
    if problems:
        complain(f"{counted(problems, 'mistake')} in specs, see above; the files with mistakes were left out")
