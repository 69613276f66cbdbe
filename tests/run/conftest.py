"""Pools of workers shared by the tests of the runner, so that torch is loaded once for each.

The tests that use them run in one pytest process: two would load torch, and set up what modules share, twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradverify.run.pool import LocalPool
from gradverify.run.task import Engine

_SHARED = {"engine", "alone"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and _SHARED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("engine"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    pool = LocalPool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def alone() -> Iterator[LocalPool]:
    """A pool of one worker, which may be killed together with the process that starts it."""
    pool = LocalPool(1)
    yield pool
    pool.close()
