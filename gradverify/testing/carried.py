"""Failures on their way from a process of pytest-xdist to the one that prints: pytest sends no more than their text."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict
from typing import Any

import pytest

from gradverify.testing.failure import Crash, Told

_OURS = "gradverify_told"


class Carrying:
    """Hooks of pytest: a report becomes plain data, and a report again."""

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self, report: Any) -> Generator[None, Any, Any]:
        data = yield
        if data is not None and isinstance(report.longrepr, Told):
            data[_OURS] = asdict(report.longrepr)
        return data

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> Generator[None, Any, Any]:
        ours = data.pop(_OURS, None)
        report = yield
        if ours is not None:
            report.longrepr = Told(text=ours["text"], reprcrash=Crash(**ours["reprcrash"]))
        return report
