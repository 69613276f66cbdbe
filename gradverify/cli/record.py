"""`gradverify record`: run a command, and write specs for the hand-written Functions that it calls."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gradverify.cli import options as opt
from gradverify.cli.exits import UsageProblem
from gradverify.cli.files import why_no_folder
from gradverify.cli.terminal import complain, say_error
from gradverify.report.safe import safe
from gradverify.report.words import counted


def record(
    command: opt.CommandWords = None,
    *,
    output: opt.RecordedFolder = Path("specs"),
    values: opt.KeptValues = False,
) -> int:
    """Run a command, and write specs for the calls of hand-written Functions in it and in its child processes.

    The command's output and exit code are its own; 127 if there is no such command. At the end stderr says which
    specs were written, and what could not be recorded.
    """
    if not command:
        raise UsageProblem("record: there is no command; write it at the end, as in gradverify record -- pytest tests/")
    if why := why_no_folder(output):
        raise UsageProblem(f"--output {output}: {why}")
    from gradverify.author.recording.observing import code_of_failed_start, run_observed

    with TemporaryDirectory(prefix="gradverify-record-", ignore_cleanup_errors=True) as notes:
        try:
            code = run_observed(command, Path(notes), keeps_values=values)
        except OSError as error:
            complain(f"record: could not start {shlex.quote(command[0])}: {error.strerror or error}")
            return code_of_failed_start(error)
        _write_specs(Path(notes), output, f"`{shlex.join(command)}`")
    return code


def _say_trying(documents: int) -> None:
    """Say on a terminal what takes the next seconds."""
    if sys.stderr.isatty():
        complain(f"trying {counted(documents, 'recorded spec')}; Ctrl-C writes the rest as drafts")


def _write_specs(notes: Path, output: Path, source: str) -> None:
    """Write the specs and say so. Whatever goes wrong is told, and does not change the command's exit code."""
    try:
        from gradverify.author.recording.specs import specs_from_notes
        from gradverify.author.recording.wording import recorded_rows, with_prefix

        recorded = specs_from_notes(notes, output, source, _say_trying)
        say_error(with_prefix([safe(row) for row in recorded_rows(recorded, output)]))
    except KeyboardInterrupt:
        complain("interrupted while the specs were written")
    except Exception as error:
        complain(f"record: the specs could not be written: {type(error).__name__}: {error}")
