"""One pool of workers for all tests of the runner: its server loads torch once."""

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
