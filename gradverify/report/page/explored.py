"""What a page tells about an exploration: how many tries, each failure with its inputs, and short lists of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradverify.problem import found_at
from gradverify.report.explored_text import also_text, explored_counts, explored_verdict
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
    saved: str  # the file that it was written to, "" if it was not
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
    summary: str  # "400 tries with other inputs, 1 failure, 2 questions"
    failures: tuple[FailureDetails, ...]
    lists: tuple[ShortList, ...]


def explored_details(explored: Exploration, most_rows: int) -> ExploredDetails:
    """Return the details of an exploration with at most so many elements per finding."""
    return ExploredDetails(
        verdict=explored_verdict(explored),
        summary=one_line(explored_counts(explored)),
        failures=tuple(_failure(found, explored, most_rows) for found in explored.failing),
        lists=tuple(_lists(explored)),
    )


def _failure(found: Discovery, explored: Exploration, most_rows: int) -> FailureDetails:
    return FailureDetails(
        title=one_line(found_at(found, explored)),
        inputs=readable(found.inputs).rstrip("\n") or NO_YAML,
        also=one_line(also_text(found)),
        saved=one_line(found.saved),
        message="" if found.checks else readable(found.message),
        checks=tuple(check_details(check, most_rows) for check in found.checks),
    )


def _lists(explored: Exploration) -> Iterator[ShortList]:
    extremes = [_line(found) for found in explored.extremes if found not in explored.failing]
    questions = [_line(found) for found in explored.questions]
    if extremes:
        yield _listed(extremes, "extreme", "extremes", "wrong numbers far outside the range of the inputs as written")
    if questions:
        yield _listed(
            questions, "question", "questions", "backward refuses these inputs, or the check cannot decide there"
        )
    if explored.lost:
        lost = [one_line(phrase) for phrase in explored.lost]
        yield _listed(lost, "lost try", "lost tries", "the process ended, or the time limit passed")


def _listed(lines: Sequence[str], noun: str, plural: str, meaning: str) -> ShortList:
    return ShortList(title=counted(len(lines), noun, plural), meaning=meaning, lines=tuple(lines))


def _line(found: Discovery) -> str:
    also = f" (and {counted(found.also, 'later try', 'later tries')})" if found.also else ""
    return f"{one_line(', '.join(found.changes))}: {one_line(parted(found.message)[0])}{also}"
