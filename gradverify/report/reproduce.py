"""The command that runs one case again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import islice

from gradverify.problem import BROKEN_OFF
from gradverify.report.lines import DIM, Line, cells, line, span
from gradverify.report.safe import safe
from gradverify.result import CaseResult

_REQUIRED = "--require-device"
_BUDGET = "--budget"  # of tries with other inputs
_FLAGS = ("--no-drafts",)  # options of a run that take no value


def reproduce_command(case: CaseResult) -> str:
    """Return the shell command for this case alone, with the options its run was given; "" if there is none."""
    if not case.spec:
        explore = ["--explore"] if _is_found_elsewhere(case) else []
        return check_command([*_fitting(case), *explore, *_strict(case)]) if case.rerun else ""
    spec = f"./{case.spec}" if case.spec.startswith("-") else case.spec  # a name, not an option
    command = "explore" if _is_found_elsewhere(case) else "run"
    words = [f"gradverify {command}", shlex.quote(safe(spec)), f"-k {always_quoted(safe(case.id))}"]
    return " ".join([*words, *map(shlex.quote, _fitting(case)), *_strict(case)])


def is_of_command(case: CaseResult) -> bool:
    """True if the case was run by a command, and not from Python."""
    return bool(case.spec or case.rerun)


def check_command(words: Sequence[str]) -> str:
    """Return the `gradverify check` with these words."""
    return " ".join(["gradverify check", *(shlex.quote(safe(word)) for word in words)])


def _is_found_elsewhere(case: CaseResult) -> bool:
    """True if there is something to see at other inputs than those written."""
    found = case.explored
    return found is not None and bool(found.discoveries or found.broken or found.message == BROKEN_OFF)


def _strict(case: CaseResult) -> list[str]:
    return ["--strict"] if case.explored is not None and case.explored.failing and case.explored.strict else []


def _fitting(case: CaseResult) -> list[str]:
    """Leave out devices that have to be there for other cases, since perhaps none of this spec is for them.

    Options for changing inputs too, where the inputs as written are reason enough.
    """
    own = (case.device, case.device.partition(":")[0])
    fitting = [option for option in _options(case.rerun) if option[0] != _REQUIRED or option[-1] in own]
    fitting = [option for option in fitting if option[0] != _BUDGET or _is_found_elsewhere(case)]
    return [safe(word) for option in fitting for word in option]


def _options(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each option together with its value, and each other word alone."""
    rest = iter(words)
    for word in rest:
        has_value = word.startswith("--") and word not in _FLAGS
        yield (word, *islice(rest, int(has_value)))


def command_lines(lead: str, command: str, width: int, style: str = "") -> list[Line]:
    """Return `lead command`, on two lines where one is too short; a command is there to be copied: never broken."""
    if cells(f"{lead} {command}") <= width:
        return [line(span(f"{lead} ", DIM), span(command, style))]
    return [line(span(lead, DIM)), line(span(command, style))]


def always_quoted(text: str) -> str:
    """Return `text` as one shell word in quotes, also where it needs none: it shows where an id ends."""
    quoted = shlex.quote(text)
    return quoted if quoted != text else f"'{text}'"
