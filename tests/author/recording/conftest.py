"""A folder with the file ops.py, and workers that have imported what its operators import at their first call."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.run.pool import LocalPool
from tests.author.recording.making import OPS
from tests.lent import Commands


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def commands(commands: Commands, _lent_pool: tuple[Path, LocalPool]) -> Commands:
    """The server imports it once. Else each worker of each command would, which takes a second."""
    _, pool = _lent_pool
    pool.prepare()
    return commands
