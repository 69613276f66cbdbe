"""Observe a block of code of this process, and write specs at its end."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from gradverify.author.recording.observing import observed
from gradverify.author.recording.specs import Recorded, specs_from_notes
from gradverify.author.recording.wording import recorded_rows


class Recording:
    """What `record` has written; empty until its block has ended. `print` shows it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorded: Recorded | None = None

    @property
    def specs(self) -> tuple[Path, ...]:
        """The files of specs."""
        return () if self._recorded is None else tuple(file.path for file in self._recorded.files)

    def __str__(self) -> str:
        if self._recorded is None:
            return "recording"
        return "\n".join(recorded_rows(self._recorded, self._folder))

    @property
    def is_interrupted(self) -> bool:
        """True if the writing of specs was interrupted."""
        return self._recorded is not None and self._recorded.is_interrupted

    def write(self, notes: Path) -> tuple[str, ...]:
        """Write specs for the notes in a folder; return messages about what went wrong."""
        try:
            self._recorded = specs_from_notes(notes, self._folder, "gradverify.record")
        except Exception as error:
            return (f"the specs could not be written: {type(error).__name__}: {error}",)
        return self._recorded.lost


@contextmanager
def record(folder: str | os.PathLike[str], *, values: bool = False) -> Iterator[Recording]:
    """Write specs into `folder` for the calls of hand-written Functions during the block.

    Noted are the calls of this process, in all its threads, and of the processes that it starts. `values=True` keeps
    the values of whole numbers and masks of up to 1 MiB beside the specs. Specs are written when the block has ended,
    also if it raised; what goes wrong then is a RuntimeWarning. Raises NotADirectoryError if `folder` is a file.
    """
    output = Path(folder).absolute()
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"gradverify.record: {folder} is not a folder")
    recording = Recording(output)
    has_raised = True
    with TemporaryDirectory(prefix="gradverify-record-", ignore_cleanup_errors=True) as notes:
        try:
            with observed(Path(notes), keeps_values=values):
                yield recording
            has_raised = False
        finally:
            for message in recording.write(Path(notes)):
                with suppress(RuntimeWarning) if has_raised else nullcontext():  # warnings may be errors
                    warnings.warn(f"gradverify.record: {message}", RuntimeWarning, stacklevel=3)
    if recording.is_interrupted:
        raise KeyboardInterrupt
