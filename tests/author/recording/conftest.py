"""A folder with the file ops.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.author.recording.making import OPS


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    return tmp_path
