"""Notes of observed calls to specs in a folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from gradverify.author.recording.documents import Plan, document_of, first_plan, remarks_of
from gradverify.author.recording.groups import Group, LeftOut, grouped
from gradverify.author.recording.homes import importable_from, roots_of, target_text
from gradverify.author.recording.notes import Subject, read_notes
from gradverify.author.recording.reached import file_name, with_operators_named
from gradverify.author.recording.trying import tried_plans
from gradverify.run.engines.open import open_engine
from gradverify.spec.save import save_spec
from gradverify.spec.write import document_text

_OTHER = re.compile(r"[^A-Za-z0-9_.]+")  # what a file name has a dash for
_LONGEST = 80  # characters of a file name


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecWritten:
    """One file of specs."""

    path: Path
    is_new: bool  # False if a file that says the same was there
    cases: int
    calls: int
    drafts: tuple[str, ...] = ()  # why some of its documents are not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What came of an observed command."""

    calls: int
    subjects: int  # Functions and operators that were called
    files: tuple[SpecWritten, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    lost: tuple[str, ...] = ()  # messages about what went wrong
    is_interrupted: bool = False  # while the specs were tried


def specs_from_notes(
    notes: Path, output: Path, source: str, on_trying: Callable[[int], None] = lambda _: None
) -> Recorded:
    """Write specs for the calls that are noted in a folder; `source` says what was observed.

    Every case is tried in a worker first; `on_trying` is called before that with the number of documents. Raises
    ServerError if there can be no worker.
    """
    found = with_operators_named(read_notes(notes))
    groups = grouped(found.signatures)
    uncounted = tuple(
        LeftOut(subject=subject, calls=calls, reason="more sizes and arguments than are kept apart")
        for subject, calls in found.uncounted.items()
    )
    left_out = (*groups.left_out, *uncounted)
    subjects = {signature.subject for signature in found.signatures} | set(found.uncounted)
    calls = sum(signature.calls for signature in found.signatures) + sum(found.uncounted.values())
    lost = _failures(found.failures)
    if not groups.groups:
        return Recorded(calls=calls, subjects=len(subjects), left_out=left_out, lost=lost)
    planned = _planned(groups.groups, output)
    folders = [_folder(output, group.subject) for group in groups.groups]
    on_trying(len(planned))
    with closing(open_engine()) as engine:
        plans, interrupted = tried_plans(planned, folders, engine)
    files, unwritten = _write_all(groups.groups, plans, output, source)
    return Recorded(
        calls=calls,
        subjects=len(subjects),
        files=files,
        left_out=left_out,
        lost=(*lost, *unwritten),
        is_interrupted=interrupted,
    )


def _failures(messages: Sequence[str]) -> tuple[str, ...]:
    if not messages:
        return ()
    many = "one call" if len(messages) == 1 else f"{len(messages)} calls"
    return (f"{many} could not be noted: {messages[0]}",)


def _planned(groups: Sequence[Group], output: Path) -> list[tuple[Group, Plan]]:
    roots = roots_of({group.subject.module.partition(".")[0] for group in groups})
    planned = []
    for group in groups:
        folder = _folder(output, group.subject)
        text = target_text(group.subject, folder, importable_from(roots))
        planned.append((group, _with_files(first_plan(group, text), group)))
    return planned


def _with_files(plan: Plan, group: Group) -> Plan:
    """Return the plan with the kept values of its inputs, in the files that they were kept in."""
    files = {(number, name): path for number, each in enumerate(group.signatures) for name, path in each.kept.items()}
    return replace(plan, files=files) if files else plan


def _write_all(
    groups: Sequence[Group], plans: Sequence[Plan], output: Path, source: str
) -> tuple[tuple[SpecWritten, ...], tuple[str, ...]]:
    """Write a file for each subject; return the files, and messages about those that could not be written."""
    by_subject: dict[Subject, list[tuple[Group, Plan]]] = {}
    for group, plan in zip(groups, plans, strict=True):
        by_subject.setdefault(group.subject, []).append((group, plan))
    written: list[SpecWritten] = []
    lost: list[str] = []
    for subject, own in by_subject.items():
        folder = _folder(output, subject)
        try:
            written.append(_write(folder, subject, own, source))
        except OSError as error:
            lost.append(f"could not write a spec into {folder}: {error.strerror or error}")
        except ValueError as error:
            lost.append(f"could not write a spec for {subject.name}: {error}")
    return tuple(written), tuple(lost)


def _write(folder: Path, subject: Subject, own: Sequence[tuple[Group, Plan]], source: str) -> SpecWritten:
    name = _OTHER.sub("-", file_name(subject))[:_LONGEST]
    texts: list[str] = []
    cases = 0
    for group, plan in own:
        placed = _with_copied_files(plan, folder, name)
        document = document_of(group, placed)
        cases += len(document.get("cases", [None]))
        texts.append(document_text(document, comment=_comment(group, placed, source)))
    saved = save_spec(folder, name, "---\n".join(texts))
    return SpecWritten(
        path=saved.path,
        is_new=saved.is_new,
        cases=cases,
        calls=sum(group.calls for group, _ in own),
        drafts=tuple(plan.draft for _, plan in own if plan.draft),
    )


def _with_copied_files(plan: Plan, folder: Path, name: str) -> Plan:
    """Copy kept values beside the spec, and return the plan with the names that the copies have."""
    if not plan.files:
        return plan
    copied: dict[tuple[int, str], str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for (number, tensor), path in plan.files.items():
        goal = _free_copy(Path(path), folder, f"{name}-{_OTHER.sub('-', tensor).strip('-')}")
        copied[number, tensor] = goal.name
    return replace(plan, files=copied)


def _free_copy(path: Path, folder: Path, name: str) -> Path:
    """Copy a file under the first name that is free, or has these bytes already; return the copy."""
    data = path.read_bytes()
    number = 1
    while True:
        goal = folder / f"{name}{f'-{number}' if number > 1 else ''}.pt"
        if not goal.exists():
            shutil.copyfile(path, goal)
            return goal
        if goal.read_bytes() == data:
            return goal
        number += 1


def _comment(group: Group, plan: Plan, source: str) -> str:
    calls = "1 call" if group.calls == 1 else f"{group.calls:,} calls"
    rows = [f"recorded {date.today().isoformat()} from {source}, {calls}", *remarks_of(group, plan)]
    return "\n".join(rows)


def _folder(output: Path, subject: Subject) -> Path:
    """Return the folder of a subject's spec: folders for the parts of its module, where `init` looks for it too."""
    parts = [Path(subject.file).stem] if subject.module == "__main__" else subject.module.split(".")
    names = [_OTHER.sub("-", part) for part in parts]
    return Path(os.path.abspath(output.joinpath(*names)))  # noqa: PTH100 (links are kept)
