"""A command line with a fake engine: no spec is read and nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))

from report_specimens import report

from gradverify.baseline.apply import baseline_on, case_with_baseline
from gradverify.case import Case, Target
from gradverify.cli import engine
from gradverify.cli.app import app
from gradverify.cli.request import Request
from gradverify.errors import SpecError
from gradverify.result import CaseResult, NotRun, Stop
from gradverify.run.interrupts import Interrupts
from gradverify.run.options import EngineOptions, Outcome


@dataclass
class Fake:
    """The results that the fake engine returns, and the arguments that it was called with."""

    results: list[CaseResult] = field(default_factory=list)
    spec_errors: tuple[SpecError, ...] = ()
    run_errors: tuple[SpecError, ...] = ()
    specs: tuple[object, ...] = ("spec",)
    interrupted: bool = False
    raises: BaseException | None = None
    paths: tuple[Path, ...] = ()
    request: Request | None = None
    interrupts: Interrupts | None = None  # those of the last run
    workers: int | None = None
    closed: bool | None = None  # True after the engine was closed; None if none was opened
    workers_ended: bool = False
    ran: list[str] = field(default_factory=list)

    def read(self, paths: Sequence[Path]) -> Any:
        self.paths = tuple(paths)
        return SimpleNamespace(specs=self.specs, errors=self.spec_errors)

    def expand(self, specs: object, request: Request) -> tuple[Case, ...]:
        self.request = request
        return tuple(case_of(result) for result in self.results)

    def written_cases(self, specs: object) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for result in self.results:
            found.setdefault(str(Path(result.spec).absolute()), set()).add(result.id.rpartition("/")[0])
        return found

    @contextmanager
    def opened(self, options: EngineOptions) -> Iterator[None]:
        self.workers = options.workers
        self.closed = False
        try:
            yield
        finally:
            self.closed = True

    def end_workers(self, opened: None) -> None:
        self.workers_ended = not self.closed

    def run(
        self,
        opened: None,
        cases: tuple[Case, ...],
        specs: object,
        request: Request,
        listener: engine.Listener,
        interrupts: Interrupts,
    ) -> Any:
        self.interrupts = interrupts
        if self.raises:
            raise self.raises
        self.ran = [case.id for case in cases]
        done = [] if self.run_errors else [result for result in self.results if result.id in self.ran]
        bad = next((number for number, result in enumerate(done) if not result.as_expected), len(done))
        done = done[: bad + 1] if request.fail_fast else done
        not_run = () if self.run_errors else tuple(self.ran[len(done) :])
        for result in done:
            listener.started(result.id, "")
            listener.finished(case_with_baseline(result, baseline_on(request.known, date.today())))
        left = tuple(NotRun(id=name, why=Stop.FAIL_FAST) for name in not_run)
        made = replace(report(*done), not_run=left)
        return Outcome(report=made, errors=self.run_errors, interrupted=self.interrupted)


def case_of(result: CaseResult) -> Case:
    file, _, name = result.function.rpartition(":")
    target = Target(file=str(Path(file).absolute()), name=name, written=f"../{result.function}")
    return Case(
        id=result.id,
        draw_key=result.id,
        spec=result.spec,
        line=result.line,
        target=target,
        inputs={},
        device=result.device,
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    made = Fake()
    for name in ("read", "expand", "written_cases", "opened", "run", "end_workers"):
        monkeypatch.setattr(engine, name, getattr(made, name))
    monkeypatch.setattr(engine, "schema", lambda: {"type": "object"})
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def call(fake: Fake) -> Callable[..., Any]:
    return lambda *words: CliRunner().invoke(app, list(words))
