"""What a worker notes of its progress can be read whatever becomes of the worker."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from gradverify.result import CheckResult, Verdict
from gradverify.run.framing import packed
from gradverify.run.notepad import clear, new_notepad, note, noted
from gradverify.run.task import Progress

MUCH = Progress(checks=tuple(CheckResult(check=f"check{k}", verdict=Verdict.PASS) for k in range(30)))
LITTLE = Progress(checks=())


def test_the_last_note_is_read_until_it_is_cleared() -> None:
    notepad = new_notepad()
    assert noted(notepad) is None
    for progress in (LITTLE, MUCH, LITTLE):
        note(notepad, progress)
        assert noted(notepad) == progress
    clear(notepad)
    assert noted(notepad) is None
    os.close(notepad)
    assert noted(notepad) is None


@pytest.mark.parametrize("body", [b"", b"nothing", packed(MUCH)[:-9], packed(Fraction(1, 2)), packed(Verdict.PASS)])
def test_what_is_no_progress_is_read_as_none(body: bytes, tmp_path: Path) -> None:
    """A worker that dies while it writes leaves a part, and user code can write to any descriptor."""
    (tmp_path / "notes").write_bytes(body)
    with (tmp_path / "notes").open("rb") as file:
        assert noted(file.fileno()) is None


def forbidden(name: str) -> int:
    raise PermissionError(name)


@pytest.mark.parametrize("is_there", [False, True])
def test_a_system_without_files_in_memory_has_a_notepad(is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_there:
        monkeypatch.setattr(os, "memfd_create", forbidden)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    notepad = new_notepad()
    note(notepad, MUCH)
    assert noted(notepad) == MUCH
    os.close(notepad)
