"""Where the cases of a test session are run, one after the other: one worker, kept from the first case to the last."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.case import Case, Exploring
from gradverify.result import CaseResult
from gradverify.run.engines.open import open_engine
from gradverify.run.options import EngineOptions, RunOptions
from gradverify.run.session import run_cases
from gradverify.run.task import Engine
from gradverify.spec.model import Spec


class Bench:
    """Runs cases apart from pytest's process, which a crash does not reach; in that process where it is asked for."""

    def __init__(self, *, in_process: bool, exploring: Exploring | None = None) -> None:
        self._options = RunOptions(workers=0 if in_process else 1, exploring=exploring)
        self._engine: Engine | None = None  # opened for the first case: collecting alone starts no process

    def run(self, case: Case, specs: Sequence[Spec]) -> CaseResult:
        """Return the result of a case.

        Raises the first SpecError where the function shows that its spec is mistaken, ServerError where there can be
        no worker, and KeyboardInterrupt.
        """
        if self._engine is None:
            self._engine = open_engine(EngineOptions(workers=self._options.workers))
        outcome = run_cases([case], specs, self._options, lambda _: None, engine=self._engine)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.errors:
            raise outcome.errors[0]
        (result,) = outcome.report.cases
        return result

    def close(self) -> None:
        """End the worker."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
