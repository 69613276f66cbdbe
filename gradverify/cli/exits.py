"""Exit codes of the commands, and the one place where exceptions become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Any

import typer

from gradverify.cli.defect import defect_report
from gradverify.cli.starting import raise_on_interrupt
from gradverify.cli.terminal import OutputError, complain, print_problems, say_error, silence_stdout
from gradverify.errors import GradverifyError, SpecError

Command = Callable[..., int]  # returns its exit code, an ExitCode unless it is that of another program


class ExitCode(IntEnum):
    """Exit code of a command."""

    OK = 0  # every case is as expected
    UNEXPECTED = 1  # a case is not as expected
    USAGE = 2  # usage, bad spec, nothing to run, or output that could not be written
    DEFECT = 3  # an internal error of gradverify
    INTERRUPTED = 130  # by Ctrl-C; finished cases were reported


class UsageProblem(GradverifyError):
    """The command cannot be done as given. Each argument is one line: the reason and what to do."""

    args: tuple[str, ...]


def guarded(command: Command) -> Callable[..., None]:
    """Return a command that always ends with an exit code, never with a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        raise typer.Exit(int(_outcome(command, args, kwargs)))

    return wrapped


def unwritten(error: Exception) -> ExitCode:
    """Print that stdout could not be written, and return the exit code."""
    if not isinstance(error, OutputError):
        silence_stdout()  # the rest of the buffer must not fail again at exit
    why = getattr(error, "strerror", None) or error
    complain(str(error) if isinstance(error, OutputError) else f"could not write to standard output: {why}")
    return ExitCode.USAGE


def _outcome(command: Command, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    try:
        raise_on_interrupt()
        return command(*args, **kwargs)
    except SpecError as error:
        print_problems([error])
        return ExitCode.USAGE
    except UsageProblem as error:
        for problem in error.args:
            complain(problem)
        return ExitCode.USAGE
    except GradverifyError as error:
        complain(str(error))
        return ExitCode.USAGE
    except KeyboardInterrupt:
        complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return ExitCode.OK
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _cwd_was_removed():
            complain("the current folder is not there any more; change to one that is")
            return ExitCode.USAGE
        say_error(defect_report(error, sys.argv[1:]))
        return ExitCode.DEFECT


def _cwd_was_removed() -> bool:
    """True if the current folder has been removed."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False
