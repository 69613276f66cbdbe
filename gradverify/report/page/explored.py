"""What a page tells about an exploration: how many tries, each failure with its inputs, and short lists of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradverify.report.page.check_details import CheckDetails, check_details
from gradverify.report.page.texts import one_line, parted, readable
from gradverify.report.words import counted
from gradverify.result import Discovery, Exploration, Verdict

NO_YAML = "the spec language has no form for these inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureDetails:
    """One input at which the gradient is wrong."""

    title: str  # what was changed, and the number of the try
    inputs: str  # YAML, a line for each input
    also: str  # how many other tries fail in the same way, "" for none
    message: str  # "" if a check says it
    checks: tuple[CheckDetails, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortList:
    """Findings with one line each."""

    title: str  # "2 questions"
    meaning: str  # what they are
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploredDetails:
    """The section of a case's details about tries with other inputs."""

    verdict: Verdict  # fail if there are failures, skip if there was no try
    summary: str  # "400 tries: 1 failure, 2 questions"
    failures: tuple[FailureDetails, ...]
    lists: tuple[ShortList, ...]


def explored_details(explored: Exploration, most_rows: int) -> ExploredDetails:
    """Return the details of an exploration with at most so many elements per finding."""
    return ExploredDetails(
        verdict=explored_verdict(explored),
        summary=_summary(explored),
        failures=tuple(_failure(found, explored.tries, most_rows) for found in explored.failures),
        lists=tuple(_lists(explored)),
    )


def explored_verdict(explored: Exploration) -> Verdict:
    """Return fail if the case fails by what was found, inconclusive for other extremes, skip if nothing was tried."""
    if not explored:
        return Verdict.FAIL
    if explored.extremes:
        return Verdict.INCONCLUSIVE
    return Verdict.PASS if explored.tries else Verdict.SKIP


def _summary(explored: Exploration) -> str:
    if explored.message:
        return f"no other inputs were tried: {one_line(explored.message)}"
    kinds = [counted(len(explored.failures), "failure")] if explored.failures else ["no failure"]
    kinds += [short.title for short in _lists(explored)]
    return f"{counted(explored.tries, 'try', 'tries')}: {', '.join(kinds)}"


def _failure(found: Discovery, tries: int, most_rows: int) -> FailureDetails:
    return FailureDetails(
        title=f"found at try {found.number:,} of {tries:,}: {_changes(found)}",
        inputs=readable(found.inputs).rstrip("\n") or NO_YAML,
        also=f"{counted(found.also, 'later try', 'later tries')} failed in the same way" if found.also else "",
        message="" if found.checks else readable(found.message),
        checks=tuple(check_details(check, most_rows) for check in found.checks),
    )


def _lists(explored: Exploration) -> Iterator[ShortList]:
    extremes = [_line(found) for found in explored.extremes]
    questions = [_line(found) for found in explored.questions]
    if extremes:
        yield _listed(extremes, "extreme", "extremes", "wrong numbers far outside the range of the inputs as written")
    if questions:
        yield _listed(questions, "question", "questions", "forward accepts these inputs and backward refuses them")
    if explored.lost:
        lost = [one_line(phrase) for phrase in explored.lost]
        yield _listed(lost, "lost try", "lost tries", "the process ended, or the time limit passed")


def _listed(lines: Sequence[str], noun: str, plural: str, meaning: str) -> ShortList:
    return ShortList(title=counted(len(lines), noun, plural), meaning=meaning, lines=tuple(lines))


def _line(found: Discovery) -> str:
    also = f" (and {counted(found.also, 'later try', 'later tries')})" if found.also else ""
    return f"{_changes(found)}: {one_line(parted(found.message)[0])}{also}"


def _changes(found: Discovery) -> str:
    return one_line(", ".join(found.changes))
