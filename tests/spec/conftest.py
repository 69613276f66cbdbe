from __future__ import annotations

from pathlib import Path

import pytest

from tests.spec.support import Folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A folder with two Python files and an array; it is the working directory."""
    (tmp_path / "ops").mkdir()
    for name in ("ops/relu.py", "ops/conv.py", "x.npz", "x.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return Folder(path=tmp_path)
