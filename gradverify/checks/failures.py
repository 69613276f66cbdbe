"""Results of checks that could not be run: user code raised, or there is nothing to judge."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from gradverify.core.model.coordinates import why_unreadable
from gradverify.core.model.problem import Primal, Problem
from gradverify.core.model.tape import Rejected
from gradverify.deadline import OutOfTime
from gradverify.errors import EvaluationError, SurrogateError, what_is_lacking
from gradverify.nested import Named
from gradverify.paths import shown_path
from gradverify.problem import DEFECT, OUT_OF_TIME, broken_off
from gradverify.result import CheckResult, Evaluations, Finding, Verdict

_CODES = {"forward": "GV902", "backward": "GV903", "surrogate": "GV908", "reference": "GV704"}
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")
_LONGEST = 500  # characters of an exception's text that are shown, at most
_OURS = ("gradverify", "torch", "triton")  # packages whose frames do not help the author of a Function
_NO_DRIVER = "0 active drivers"  # Triton's words if there is no GPU
_INTERPRET = (
    "; without a GPU, `interpret: true` in a spec, or TRITON_INTERPRET=1 in Python, runs Triton kernels on the CPU"
)


def failed_call(check: str, problem: Problem, error: EvaluationError, hint: str = "") -> CheckResult:
    """Return the result of a check whose user code raised; autograd's rejection of a gradient is a fail.

    `hint` ends the message if an exception of the user's own is named.
    """
    original = error.original
    lacking = what_is_lacking(original)
    if lacking is not None:
        return skipped(check, problem, lacking)
    if isinstance(original, MemoryError) or any(words in first_line(original).lower() for words in _OUT_OF_MEMORY):
        text = f"out of memory in {error.stage}: {first_line(original)}"
        return _single(check, problem, "GV906", Verdict.ERROR, text)
    if isinstance(error, Rejected):
        text = f"autograd rejects what backward returned: {first_line(original)}"
        return _single(check, problem, "GV312", Verdict.FAIL, text)
    if isinstance(original, SurrogateError):
        return _single(check, problem, _CODES[error.stage], Verdict.ERROR, str(original))
    place = _place(original.__traceback__)
    name, description = type(original).__name__, first_line(original)
    hint = _INTERPRET if description.startswith(_NO_DRIVER) else hint
    text = f"{error.stage} raised {name if description == name else f'{name}: {description}'}{place}{hint}"
    return _single(check, problem, _CODES[error.stage], Verdict.ERROR, text)


def timed_out(check: str, problem: Problem, error: OutOfTime) -> CheckResult:
    """Return the result of a check that ran out of time, with its findings so far; an error if it has none."""
    verdict = Verdict.ERROR if error.found is None else Verdict.INCONCLUSIVE
    found = error.found or CheckResult(check=check, verdict=Verdict.SKIP)
    return broken_off(replace(found, evaluations=evaluations(problem)), OUT_OF_TIME, str(error), verdict)


def nothing_to_differentiate(check: str, problem: Problem, reason: str) -> CheckResult:
    """Return the result of a check that finds no differentiable input or output."""
    hint = "" if problem.primals else "; in Python, `x.requires_grad_()` makes x one"
    return _single(check, problem, "GV907", Verdict.ERROR, f"nothing to differentiate: {reason}{hint}")


def defective(check: str, problem: Problem, text: str) -> CheckResult:
    """Return the result of a check that a defect of gradverify itself ended."""
    return _single(check, problem, DEFECT, Verdict.ERROR, text)


def not_dense(named: Iterable[Named | Primal]) -> str:
    """Return why an input or output cannot be judged, for example because it is sparse; "" if all can."""
    for entry in named:
        reason = why_unreadable(entry.tensor)
        if reason:
            return f"{entry.name} is {reason}: only dense tensors are judged"
    return ""


def skipped(check: str, problem: Problem, reason: str) -> CheckResult:
    """Return a skip with its reason."""
    return CheckResult(check=check, verdict=Verdict.SKIP, message=reason, evaluations=evaluations(problem))


def inconclusive(check: str, problem: Problem, code: str, reason: str) -> CheckResult:
    """Return an inconclusive result that concerns the problem as a whole."""
    return _single(check, problem, code, Verdict.INCONCLUSIVE, reason)


def failing(check: str, problem: Problem, code: str, reason: str) -> CheckResult:
    """Return a fail that concerns the problem as a whole."""
    return _single(check, problem, code, Verdict.FAIL, reason)


def evaluations(problem: Problem) -> Evaluations:
    """Return the number of calls of user code so far."""
    return Evaluations(forward=problem.meter.forward, backward=problem.meter.backward)


def _single(check: str, problem: Problem, code: str, verdict: Verdict, text: str) -> CheckResult:
    return CheckResult(
        check=check,
        verdict=verdict,
        message=text,
        evaluations=evaluations(problem),
        findings=(Finding(code=code, verdict=verdict, message=text),),
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, shortened if it is long; its type if the text is empty."""
    try:
        text = str(error)
    except Exception:  # an exception whose own __str__ raises
        return "its text could not be read"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[0] if len(lines[0]) <= _LONGEST else f"{lines[0][:_LONGEST]} …"


def _place(trace: TracebackType | None) -> str:
    """Return ` (file:line in function)` of the innermost frame in the user's own code."""
    ours = tuple(_folders(_OURS))
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_below(frame.filename, ours)]
    return f" ({shown_path(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""


def _folders(packages: Iterable[str]) -> Iterator[Path]:
    """Yield the folders of the packages that are imported."""
    for package in packages:
        file = getattr(sys.modules.get(package), "__file__", None)
        if file:
            yield Path(file).parent


def _is_below(filename: str, folders: Iterable[Path]) -> bool:
    return any(Path(filename).is_relative_to(folder) for folder in folders)
