"""One headless browser for all tests of the page; without one they are skipped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))

from gradverify.report.page.to_html import to_html
from gradverify.result import Report
from tests.browser.chromium import Browser, Tab, chromium, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with chromium(program, tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def tab(browser: Browser) -> Iterator[Tab]:
    opened = Tab(browser)
    yield opened
    opened.close()


@pytest.fixture
def show(tab: Tab, tmp_path: Path) -> Callable[..., Tab]:
    """Open the page of a report; what it asks for, or complains of, is checked by `quiet`."""

    def shown(report: Report, state: str = "") -> Tab:
        path = tmp_path / "page.html"
        path.write_text(to_html(report), encoding="utf-8")
        tab.open(f"{path.as_uri()}{state}")
        return tab

    return shown
