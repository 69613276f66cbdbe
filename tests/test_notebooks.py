"""Notebooks in docs/ run from top to bottom, show heat maps, and are committed without outputs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(notebook: Any, folder: Path) -> Any:
    """Run the cells in a kernel of this interpreter. Raises CellExecutionError if one fails."""
    from nbclient import NotebookClient

    return NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()


def htmls(notebook: Any) -> list[str]:
    """Return the HTML that each cell shows."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_without_outputs(path: Path) -> None:
    nbformat.validate(read(path))
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_first_gradient_shows_the_wrong_entries_and_mends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
    first, second = htmls(executed(read(ROOT / "docs" / "notebooks" / "first-gradient.ipynb"), tmp_path))
    assert "missing-mask" in first
    assert "<svg" in first
    assert "missing-mask" not in second


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_failing_cell_fails(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    with pytest.raises(CellExecutionError, match="assert 1 == 2"):
        executed(notebook, tmp_path)
