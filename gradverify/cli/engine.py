"""The packages behind the command line, imported only when a command needs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradverify.case import Case, Exploring, Settings
from gradverify.cli.request import Request
from gradverify.result import CaseResult
from gradverify.run.interrupts import Interrupts
from gradverify.run.options import EngineOptions

if TYPE_CHECKING:
    from gradverify.author.finding.find import OnModule
    from gradverify.author.finding.model import Finding, Found
    from gradverify.author.specs import Authored, OnFunction, Planned
    from gradverify.run.options import Event, Outcome
    from gradverify.run.task import Engine
    from gradverify.spec.arguments import Words
    from gradverify.spec.model import Spec
    from gradverify.spec.read import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Callbacks during a run."""

    started: Callable[[str, str], None]  # with the case's id, and the node that it runs on, "" for this machine
    trying: Callable[[str, int, int], None]  # with its id, while other inputs are tried, the tries and the failures
    finished: Callable[[CaseResult], None]
    noted: Callable[[str], None]  # with a sentence for the user


def read(paths: Sequence[Path]) -> Reading:
    """Read the specs in files and folders."""
    from gradverify.spec.read import read_paths

    return read_paths(paths)


def words_of(target: str, inputs: Sequence[str], reference: str | None, *, rtol: str | None, atol: str | None) -> Words:
    """Return what a command line says about one function."""
    from gradverify.spec.arguments import Words

    tolerances = {key: text for key, text in (("rtol", rtol), ("atol", atol)) if text is not None}
    return Words(target=target, inputs=tuple(inputs), reference=reference, tolerances=tolerances)


def read_words(words: Words, path: Path | None) -> Reading:
    """Read a spec from the words of a command line; `path` is the file that it is to be saved in."""
    from gradverify.spec.arguments import read_arguments

    return read_arguments(words, path)


def saved_text(specs: Sequence[Spec], request: Request, folder: Path, comment: str) -> str:
    """Return the text of a file in `folder` with the case of a spec, and with what the command line asks for."""
    from gradverify.spec.write import Several, spec_text

    cases = expand(specs, request)
    return spec_text(
        cases[0],
        comment=comment,
        folder=folder,
        several=Several(
            dtypes=tuple(dict.fromkeys(case.dtype for case in cases)),
            devices=tuple(dict.fromkeys(case.device for case in cases)),
            samples=request.samples or 1,
            seed=cases[0].seed,
        ),
    )


def expand(specs: Sequence[Spec], request: Request) -> tuple[Case, ...]:
    """Return the cases of specs, with the options of the command line in place of the specs' values."""
    from gradverify.spec.expand import Overrides
    from gradverify.spec.expand import expand as expand_specs

    overrides = Overrides(
        checks=request.checks or None,
        devices=request.devices or None,
        dtypes=request.dtypes or None,
        seed=request.seed,
        samples=request.samples,
        timeout=request.timeout,
        torch_gradcheck=request.torch_gradcheck,
        max_elements=request.max_elements or Settings().max_elements,
        max_evaluations=request.max_evaluations or Settings().max_evaluations,
        timed=request.timed,
    )
    return expand_specs(specs, overrides)


def written_cases(specs: Sequence[Spec]) -> Mapping[str, Collection[str]]:
    """Return the ids of each spec's cases, without device, dtype and sample, by the spec's absolute path."""
    found: dict[str, set[str]] = {}
    for spec in specs:
        path = os.path.abspath(spec.file)  # noqa: PTH100 (links are kept)
        found.setdefault(path, set()).update(f"{spec.name}/{case.name}" for case in spec.cases)
    return found


@contextmanager
def opened(options: EngineOptions) -> Iterator[Engine]:
    """Open the engine that cases will run in, and close it when the block ends. Raises ServerError.

    The modules that read specs are imported here too: an interrupt during certain imports makes Python end by SIGINT
    instead of with an exit code.
    """
    from gradverify.run.engines.open import open_engine

    made = open_engine(options)
    try:
        for room in ("gradverify.spec.expand", "gradverify.spec.read"):
            import_module(room)
        yield made
    finally:
        made.close()


def run(
    engine: Engine,
    cases: tuple[Case, ...],
    specs: Sequence[Spec],
    request: Request,
    listener: Listener,
    interrupts: Interrupts,
    earlier: Mapping[str, float] | None = None,
) -> Outcome:
    """Run cases in an engine and call the listener. Failures in the baseline already count as expected here.

    `earlier` has the seconds that cases took before, by id: the slowest start first.
    """
    from gradverify.baseline.apply import baseline_on, case_with_baseline
    from gradverify.run.options import Noted, RunOptions, Started, TryingInputs
    from gradverify.run.session import run_cases

    def on_event(event: Event) -> None:
        if isinstance(event, Started):
            listener.started(event.case_id, event.where)
        elif isinstance(event, TryingInputs):
            listener.trying(event.case_id, event.tries, event.failures)
        elif isinstance(event, Noted):
            listener.noted(event.text)
        else:
            listener.finished(event.result)

    judge = baseline_on(request.known, date.today())
    options = RunOptions(
        workers=request.workers,
        fail_fast=request.fail_fast,
        memory=request.memory,
        seed=request.seed,
        require_devices=request.require_devices,
        no_drafts=request.no_drafts,
        keep_going=request.keep_going,
        exploring=exploring_of(request),
        earlier=earlier or {},
        judge=lambda result: case_with_baseline(result, judge),
    )
    return run_cases(cases, specs, options, on_event, engine=engine, interrupts=interrupts)


def end_workers(engine: Engine) -> None:
    """Let the workers end. Does not wait for them, as closing the engine does."""
    engine.renew()


def exploring_of(request: Request) -> Exploring | None:
    """Return how the inputs of cases are changed, None if they are not."""
    if not request.explore:
        return None
    folder = "" if request.save is None else os.path.abspath(request.save)  # noqa: PTH100 (links are kept)
    return Exploring(budget=request.budget or 0, strict=request.strict, folder=folder)


def find(places: Sequence[str], engine: Engine, interrupts: Interrupts, on_module: OnModule) -> Finding:
    """Return the functions with a gradient of packages and paths. Raises NoSuchPackage."""
    from gradverify.author.finding.find import find as find_functions

    return find_functions(places, engine, interrupts.waiting, on_module)


def plan_specs(finding: Finding, folder: Path) -> tuple[Planned, ...]:
    """Return the file of each function's spec."""
    from gradverify.author.specs import planned

    return planned(finding, folder)


def author_specs(
    plan: Sequence[Planned], finding: Finding, engine: Engine, interrupts: Interrupts, on_function: OnFunction
) -> Iterator[Authored]:
    """Yield the spec of each function."""
    from gradverify.author.specs import author

    return author(plan, finding, engine, interrupts.waiting, on_function)


def missing(finding: Finding, specs: Sequence[Spec]) -> tuple[Found, ...]:
    """Return the functions that no spec names."""
    from gradverify.author.missing import missing as missing_in

    return missing_in(finding, (case.target for spec in specs for case in spec.cases))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the spec language."""
    from gradverify.spec.schema import json_schema

    return json_schema()
