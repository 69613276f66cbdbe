"""Spec files as files of tests, their cases as tests."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from gradverify.case import Case
from gradverify.errors import GradverifyError, SpecError
from gradverify.report.safe import safe
from gradverify.result import Verdict
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.files import SUFFIXES
from gradverify.spec.model import Spec
from gradverify.spec.read import read_paths
from gradverify.testing.bench import Bench
from gradverify.testing.failure import UnexpectedCase, told

_ELEMENTS = 10  # of each finding: what a test's failure shows


class Collecting:
    """The hooks of a session that was asked for specs."""

    def __init__(self, bench: Bench, patterns: tuple[str, ...]) -> None:
        self._bench = bench
        self._patterns = patterns

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        if file_path.suffix not in SUFFIXES:
            return None
        named = parent.session.isinitpath(file_path)
        if not named and not any(fnmatchcase(file_path.name, pattern) for pattern in self._patterns):
            return None
        found: SpecFile = SpecFile.from_parent(parent, path=file_path, bench=self._bench)
        return found

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, SpecItem) and report.skipped and isinstance(report.longrepr, tuple):
            # where the case stands, not where this plugin said so
            report.longrepr = (str(item.path), item.case.line, report.longrepr[2])
        return report


class SpecFile(pytest.File):
    """A file of cases."""

    def __init__(self, *, bench: Bench, **rest: Any) -> None:
        super().__init__(**rest)
        self._bench = bench

    def collect(self) -> Iterator[pytest.Item]:
        reading = read_paths([_shown(self.path, self.config.invocation_params.dir)])
        if reading.errors:
            raise self.CollectError("\n".join(safe(str(error)) for error in reading.errors))
        try:
            cases = expand(reading.specs, Overrides(max_elements=_ELEMENTS))
        except SpecError as error:
            raise self.CollectError(safe(str(error))) from error
        for case in cases:
            yield SpecItem.from_parent(self, name=case.id, case=case, specs=reading.specs, bench=self._bench)


class SpecItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: Case, specs: tuple[Spec, ...], bench: Bench, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case
        self._specs = specs
        self._bench = bench
        self.add_marker("gradverify")

    def runtest(self) -> None:
        result = self._bench.run(self.case, self._specs)
        if not result.as_expected:
            raise UnexpectedCase(result)
        if result.verdict is Verdict.SKIP:
            reasons = (result.message, *(check.message for check in result.checks))
            pytest.skip(safe(next((reason for reason in reasons if reason), "skipped")))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return our table in place of a traceback through our own code."""
        if isinstance(excinfo.value, GradverifyError):
            return told(excinfo.value, str(self.path), self.case.line)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, self.name


def _shown(path: Path, start: Path) -> Path:
    """Return the path as one would write it where pytest was started."""
    shown = os.path.relpath(path, start)
    return path if shown.startswith(os.pardir) else Path(shown)
