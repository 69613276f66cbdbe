"""Every exception gradverify raises on purpose."""

from __future__ import annotations

import sys
from dataclasses import dataclass

# What user code raises is a result. Anything else ends the check: Ctrl-C, and how a test runner ends or skips a test.
USER_ERRORS = (Exception, SystemExit, GeneratorExit)


class GradverifyError(Exception):
    """Root of all errors that gradverify raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Where:
    """A place in a file; lines and columns count from 1. Line 0 is no file, but an argument of the command line."""

    file: str  # path as the user gave it, or the argument
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class SpecError(GradverifyError):
    """A mistake in the user's YAML: where it stands, what is wrong, and what to do next."""

    def __init__(self, *, where: Where, path: str = "", problem: str, hint: str = "") -> None:
        self.where = where  # file, line and column
        self.path = path  # dotted path of the key, "" for the document itself
        self.problem = problem  # what is wrong, without a full stop
        self.hint = hint  # what to do next, "" when there is nothing to add
        super().__init__(str(self))

    def __str__(self) -> str:
        key = f"{self.path}: " if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.where}: {key}{self.problem}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_spec_error, (self.where, self.path, self.problem, self.hint)


class TargetError(GradverifyError):
    """The function a spec names could not be found or loaded."""


class InputError(GradverifyError):
    """An input could not be made as the spec describes it."""


class SurrogateError(GradverifyError):
    """A surrogate does not return what the function returns."""


class NotOnThisMachine(GradverifyError):
    """User code needs something that this machine lacks; the message names it. Its case is skipped."""


class EvaluationError(GradverifyError):
    """User code raised while it was being evaluated; the original exception is the cause.

    `stage` is "forward", "backward", "surrogate" or "reference".
    """

    def __init__(self, stage: str, original: BaseException) -> None:
        self.stage = stage
        self.original = original
        super().__init__(f"{stage} raised {type(original).__name__}: {_text_of(original)}")


def what_is_lacking(error: BaseException) -> str | None:
    """Return what this machine lacks, if that is why an exception was raised, else None.

    It is the text of the first NotOnThisMachine or `unittest.SkipTest` among the exception and what it was raised from.
    """
    skip = getattr(sys.modules.get("unittest"), "SkipTest", NotOnThisMachine)
    seen: list[BaseException] = []
    raised: BaseException | None = error
    while raised is not None and raised not in seen:
        if isinstance(raised, NotOnThisMachine | skip):
            return _text_of(raised)
        seen.append(raised)
        raised = raised.__cause__ or (None if raised.__suppress_context__ else raised.__context__)
    return None


def _text_of(error: BaseException) -> str:
    """Return what an exception says, also where printing it raises in turn."""
    try:
        return "".join(("", str(error)))  # a plain str, where the exception returns a subclass of its own
    except Exception as second:
        return f"its text could not be read ({type(second).__name__})"


def _rebuild_spec_error(where: Where, path: str, problem: str, hint: str) -> SpecError:
    return SpecError(where=where, path=path, problem=problem, hint=hint)
