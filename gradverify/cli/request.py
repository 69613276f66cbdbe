"""The request that the options of `run` and `list` make, and its validation."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gradverify.baseline.model import NOTHING_KNOWN, Baseline
from gradverify.case import CASE_DTYPES, DEVICE_KINDS, SHORT_DTYPES, TorchGradcheck
from gradverify.catalogue import known_checks
from gradverify.cli.exits import UsageProblem
from gradverify.cli.files import why_no_folder
from gradverify.cli.options import STDOUT, CaseFilter, CaseSettings, Execution, OtherInputs, Outputs, Selection
from gradverify.cli.shard import shard_of
from gradverify.result import Shard
from gradverify.run.options import EngineName, EngineOptions
from gradverify.size import MOST_MEMORY, size_of, size_text
from gradverify.spec.limits import MAX_TIMEOUT

_DEVICE = re.compile(rf"(?:{'|'.join(DEVICE_KINDS)})(?::[0-9]{{1,3}})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a command; None and () mean that an option was not given."""

    checks: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    seed: int | None = None
    samples: int | None = None
    timeout: float | None = None  # seconds for one case
    memory: int | None = None  # bytes for one case
    shard: Shard | None = None
    torch_gradcheck: TorchGradcheck | None = None
    max_elements: int | None = None  # saved per finding
    max_evaluations: int | None = None  # calls of forward and backward in the search for wrong entries
    timed: bool = False
    workers: int | None = None  # None: as many as there are cores; 0: in this process
    engine: EngineName | None = None  # None: local
    address: str | None = None  # of a cluster
    fail_fast: bool = False
    keep_going: bool = False
    require_devices: tuple[str, ...] = ()
    no_drafts: bool = False  # a draft is not as expected
    explore: bool = False
    budget: int | None = None  # tries of each case
    strict: bool = False  # wrong numbers far outside the range of the inputs fail too
    save: Path | None = None  # folder for specs of what is found at other inputs
    known: Baseline = NOTHING_KNOWN  # failures that are as expected
    rerun: tuple[str, ...] = ()  # options for the command that repeats a case


# Options that change the result of a case: the command that repeats it needs them.
_RERUN = {
    "checks": "--check",
    "devices": "--device",
    "dtypes": "--dtype",
    "seed": "--seed",
    "samples": "--samples",
    "timeout": "--timeout",
    "memory": "--memory",
    "torch_gradcheck": "--torch-gradcheck",
    "max_evaluations": "--max-evaluations",
    "require_devices": "--require-device",
    "no_drafts": "--no-drafts",
    "budget": "--budget",
}


def requested(
    case_filter: CaseFilter,
    case_settings: CaseSettings,
    execution: Execution,
    selection: Selection,
    other_inputs: OtherInputs,
) -> Request:
    """Return the request that the options of `run` and `explore` make; raises UsageProblem."""
    request = Request(
        checks=names_of(case_filter.check),
        devices=names_of(case_filter.device),
        dtypes=names_of(case_filter.dtype),
        seed=case_settings.seed,
        samples=case_settings.samples,
        timeout=case_settings.timeout,
        memory=_memory(execution.memory),
        shard=None if selection.shard is None else shard_of(selection.shard),
        torch_gradcheck=case_settings.torch_gradcheck,
        max_elements=case_settings.elements,
        max_evaluations=case_settings.max_evaluations,
        timed=execution.time,
        workers=execution.workers,
        engine=execution.engine,
        address=execution.ray_address,
        fail_fast=execution.fail_fast,
        keep_going=selection.keep_going,
        require_devices=names_of(execution.require_device),
        no_drafts=execution.no_drafts,
        budget=other_inputs.budget,
        strict=other_inputs.strict,
    )
    check_request(request)
    return request


def engine_of(request: Request) -> EngineOptions:
    """Return the engine that a request asks for."""
    return EngineOptions(name=request.engine or EngineName.LOCAL, workers=request.workers, address=request.address)


def exploring(request: Request, save: Path | None = None) -> Request:
    """Return the request to change inputs too; raises UsageProblem if there can be no folder for what is found."""
    if save is not None and (why := why_no_folder(save)):
        raise UsageProblem(f"--save {save}: {why}")
    return replace(request, explore=True, save=save)


def refuse_without_exploring(request: Request, save: Path | None = None) -> None:
    """Raise UsageProblem for options that only mean something where inputs are changed."""
    given = {"--budget": request.budget is not None, "--strict": request.strict, "--save": save is not None}
    for option, is_given in given.items():
        if is_given:
            raise UsageProblem(f"{option} says how inputs are changed; give --explore too")


def refuse_to_watch(request: Request, outputs: Outputs, write_baseline: Path | None) -> None:
    """Raise UsageProblem for options that make no sense with --watch."""
    for output in fields(outputs):
        if getattr(outputs, output.name) == STDOUT:
            raise UsageProblem(f"--watch shows every run on stdout; name a file after --{output.name}")
    if request.workers == 0:
        raise UsageProblem("--watch needs workers, which load changed modules anew, and -j 0 runs without them")
    one_of_two(("--watch", True), ("--write-baseline", write_baseline is not None))
    one_of_two(("--watch", True), ("--save", request.save is not None))


def check_request(request: Request) -> None:
    """Raise UsageProblem for the first invalid value."""
    _each(request.checks, "--check", known_checks())
    _each(request.dtypes, "--dtype", CASE_DTYPES)
    for option, devices in (("--device", request.devices), ("--require-device", request.require_devices)):
        for device in devices:
            if not _DEVICE.fullmatch(device):
                raise _unknown(option, device, DEVICE_KINDS)
    if request.timeout is not None and not 0 < request.timeout <= MAX_TIMEOUT:
        limits = f"above 0, and at most {MAX_TIMEOUT:,}"
        raise UsageProblem(f"--timeout {request.timeout:g}: expected a number of seconds {limits}")
    if request.memory is not None and request.workers == 0:
        raise UsageProblem("--memory limits workers, and -j 0 runs without them; give one of the two")
    if request.memory is not None and sys.platform != "linux":
        raise UsageProblem("--memory: only Linux can limit all the memory that a process takes")


def names_of(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in the values of an option, which may hold several with commas between them."""
    return tuple(name.strip() for value in given or () for name in value.split(","))


def _memory(text: str | None) -> int | None:
    """Return the bytes given by --memory. Raises UsageProblem."""
    size = None if text is None else size_of(text)
    if text is not None and not size:
        raise UsageProblem(f"--memory {text}: expected a size above 0, as 512M or 2G")
    if size is not None and size > MOST_MEMORY:
        raise UsageProblem(f"--memory {text}: expected at most {size_text(MOST_MEMORY)}")
    return size


def rerun_options(request: Request) -> tuple[str, ...]:
    """Return the options for the command that repeats a case."""
    words: list[str] = []
    for field in fields(request):
        if field.name not in _RERUN:
            continue
        value = getattr(request, field.name)
        if isinstance(value, bool):
            words += [_RERUN[field.name]] if value else []
            continue
        for entry in value if isinstance(value, tuple) else () if value is None else (value,):
            words += [_RERUN[field.name], _word(field.name, entry)]
    return tuple(words)


def one_of_two(first: tuple[str, bool], second: tuple[str, bool]) -> None:
    """Raise UsageProblem if both of two exclusive options were given."""
    if first[1] and second[1]:
        raise UsageProblem(f"{first[0]} and {second[0]} exclude each other")


def _word(name: str, value: Any) -> str:
    if name == "memory":
        return size_text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _each(values: Iterable[str], option: str, known: Sequence[str]) -> None:
    for value in values:
        if value not in known:
            raise _unknown(option, value, known)


def _unknown(option: str, value: str, known: Sequence[str]) -> UsageProblem:
    short = SHORT_DTYPES.get(value, "")
    near = [short] if short in known else difflib.get_close_matches(value, known, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return UsageProblem(f"{option}: there is no {shlex.quote(value)}; {hint}")
