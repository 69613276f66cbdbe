"""The reports of several jobs to the report that one run of all their cases would have given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gradverify.errors import GradverifyError
from gradverify.report.numbers import added_up
from gradverify.report.shards import MOST_SHARDS, missing_shards
from gradverify.result import CaseResult, Environment, Report, summarize

_MOST_NAMED = 3


class MergeError(GradverifyError):
    """Reports that are not parts of one run."""


def merge_reports(parts: Sequence[tuple[str, Report]]) -> Report:
    """Return one report of named parts, the same in whatever order they are given; `seconds` is the sum of theirs.

    Shards that none of them is of are named in it. Raises MergeError where a case is in two of them, or they ran with
    different seeds.
    """
    _refuse_odd_shards(parts)
    _refuse_different_seeds(parts)
    _refuse_duplicates(parts)
    reports = [report for _, report in parts]
    cases = tuple(sorted((case for report in reports for case in report.cases), key=_place))
    return Report(
        gradverify=_joined(report.gradverify for report in reports),
        environment=_environment([report.environment for report in reports]),
        summary=summarize(cases, added_up(report.summary.seconds for report in reports)),
        missing_shards=missing_shards(reports),
        engine=_joined(report.engine for report in reports),
        cases=cases,
        not_run=tuple(sorted((case for report in reports for case in report.not_run), key=lambda case: case.id)),
    )


def _refuse_odd_shards(parts: Sequence[tuple[str, Report]]) -> None:
    """Raise MergeError where somebody has changed what a report says of shards: there is no end to numbers."""
    for name, report in parts:
        for shard in (*([report.shard] if report.shard else []), *report.missing_shards):
            if not 1 <= shard.index <= shard.of <= MOST_SHARDS:
                raise MergeError(f"{name}: there is no shard {shard}")


def _environment(parts: Sequence[Environment]) -> Environment:
    """Return where all parts ran; what differs stands there one after the other."""
    return Environment(
        python=_joined(part.python for part in parts),
        torch=_joined(part.torch for part in parts),
        platform=_joined(part.platform for part in parts),
        devices=tuple(sorted({device for part in parts for device in part.devices})),
        seed=parts[0].seed,
    )


def _refuse_different_seeds(parts: Sequence[tuple[str, Report]]) -> None:
    first = parts[0]
    other = next((part for part in parts if part[1].environment.seed != first[1].environment.seed), None)
    if other is not None:
        told = " and ".join(f"{name} {_seed_text(report)}" for name, report in (first, other))
        raise MergeError(f"these are not parts of one run: {told}")


def _refuse_duplicates(parts: Sequence[tuple[str, Report]]) -> None:
    owner: dict[str, str] = {}
    twice: list[str] = []
    for name, report in parts:
        for case in report.cases:
            if case.id in owner:
                twice.append(f"{case.id} is in {owner[case.id]} and in {name}")
            owner[case.id] = name
    if twice:
        more = (
            f"; so {'is' if len(twice) == _MOST_NAMED + 1 else 'are'} {len(twice) - _MOST_NAMED:,} more"
            if len(twice) > _MOST_NAMED
            else ""
        )
        raise MergeError(f"each case may be in one report only: {'; '.join(twice[:_MOST_NAMED])}{more}")


def _seed_text(report: Report) -> str:
    seed = report.environment.seed
    return "ran without --seed" if seed is None else f"ran with --seed {seed}"


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _place(case: CaseResult) -> tuple[Any, ...]:
    return case.spec, case.line, case.device, case.dtype, case.sample, case.id
