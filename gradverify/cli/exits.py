"""How a command ends: one exit code each, and the one place where exceptions become exit codes."""

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
from gradverify.cli.terminal import OutputError, complain, hush, print_problems, say_error
from gradverify.errors import GradverifyError, SpecError

Command = Callable[..., "ExitCode"]


class ExitCode(IntEnum):
    """What the shell is told."""

    OK = 0  # every case as expected
    UNEXPECTED = 1  # some case is not
    USAGE = 2  # usage, bad spec, nothing to run, or output that could not be written
    DEFECT = 3  # a mistake of gradverify's own
    INTERRUPTED = 130  # by Ctrl-C; what had finished was reported


class UsageProblem(GradverifyError):
    """The command cannot do what was asked: one line, or several, that say why and what to do next."""

    args: tuple[str, ...]


def guarded(command: Command) -> Callable[..., None]:
    """Wrap a command so that it ends in an exit code whatever happens; nothing of ours ends in a traceback."""

    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        raise typer.Exit(int(_outcome(command, args, kwargs)))

    return wrapped


def unwritten(error: Exception) -> ExitCode:
    """Say that stdout takes nothing more."""
    if not isinstance(error, OutputError):
        hush()  # what is left in the buffer must not fail again at the end
    why = getattr(error, "strerror", None) or error
    complain(str(error) if isinstance(error, OutputError) else f"could not write to standard output: {why}")
    return ExitCode.USAGE


def _outcome(command: Command, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExitCode:
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
        hush()
        return ExitCode.OK
    except Exception as error:
        if isinstance(error, FileNotFoundError) and _nowhere():
            complain("the current folder is not there any more; change to one that is")
            return ExitCode.USAGE
        say_error(defect_report(error, sys.argv[1:]))
        return ExitCode.DEFECT


def _nowhere() -> bool:
    """Tell whether the current folder has been removed."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False
