"""One thread for the mathematics: tests run beside each other, and tensors here are small. Ctrl-C reaches programs.

Commands of gradverify can be run in this process, in workers that they share.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gradverify.run.pool import LocalPool
    from tests.lent import Commands

# A shell starts what it runs in the background with SIGINT ignored, and every program started from here inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

_KEPT = ("HOME", "LD_LIBRARY_PATH", "PATH", "TMPDIR")  # variables that say nothing of how to print

_SET = {"COLUMNS": "80", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--few", action="store_true", help="run two variants of a parametrised test")


def pytest_configure(config: pytest.Config) -> None:
    """Load torch where tests run, not in the process that only starts the others: they wait for it."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", default=0):
        import torch

        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage, which takes a fifth of the time: what is imported stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)  # after `-m` has taken its part
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the first and the last variant of each test if few are asked for."""
    if config.getoption("--few"):
        variants = defaultdict(list)
        for item in items:
            variants[item.nodeid.partition("[")[0]].append(item)
        kept = {item for each in variants.values() for item in (each[0], each[-1])}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


@pytest.fixture(scope="session")
def _lent_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LocalPool]]:
    from tests.lent import pool_in

    folder = tmp_path_factory.mktemp("commands")
    with pytest.MonkeyPatch.context() as patch:
        pool = pool_in(folder, patch)
    yield folder, pool
    pool.close()


@pytest.fixture
def commands(_lent_pool: tuple[Path, LocalPool], monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Runs commands in an empty folder, at 80 columns, without a process and workers for each. See tests.lent."""
    from gradverify.run.options import EngineName
    from tests.lent import Commands, lend

    folder, pool = _lent_pool
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    monkeypatch.chdir(folder)
    for name in os.environ:
        if name not in _KEPT and not name.startswith("PYTEST_"):
            monkeypatch.delenv(name)
    for name, value in _SET.items():
        monkeypatch.setenv(name, value)
    lend(monkeypatch, {EngineName.LOCAL: pool})
    return Commands(folder, monkeypatch)
