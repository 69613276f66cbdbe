"""A pool of workers shared by all tests of the runner, so that torch is loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradverify.run.pool import LocalPool
from gradverify.run.task import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    pool = LocalPool(2)
    yield pool
    pool.close()
