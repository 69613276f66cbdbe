"""Paths to specs: every file below them, every document in them, and every mistake at once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.case import DEFAULT_DEVICES, DEFAULT_DTYPES
from gradverify.errors import SpecError, Where
from gradverify.spec.cases import split_cases
from gradverify.spec.dims import unused_dims
from gradverify.spec.document import compose
from gradverify.spec.files import SpecFile, file_error, find_specs, read_text
from gradverify.spec.identity import clean_stem, unique_name
from gradverify.spec.limits import MAX_CASES, MAX_ERRORS
from gradverify.spec.model import Spec, SpecCase
from gradverify.spec.node import Node, Place, error, key_place, value_place
from gradverify.spec.readers import BadValueError, Issue
from gradverify.spec.resolve import Remembered, read_case
from gradverify.spec.wording import found, listed

_BASELINE = frozenset(("version", "known"))  # keys of a file of known failures


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading some paths."""

    specs: tuple[Spec, ...]  # of the files without a mistake
    errors: tuple[SpecError, ...]  # of the others, in the order of their places


def read_paths(paths: Sequence[str | Path]) -> Reading:
    """Return the specs that files and folders hold; a file with a mistake has errors and no specs."""
    files, missing = find_specs(paths)
    namesakes = _by_name(files)
    named = {os.path.abspath(path) for path in paths}  # noqa: PTH100 (links are kept)
    readings = [_read_file(file, named) for file in files]
    errors = [*missing, *_same_names(namesakes), *(error for reading in readings for error in reading.errors)]
    if not paths:
        errors.append(file_error(Path(), "nothing to read", "name a spec, or a folder with specs"))
    specs = (spec for reading in readings for spec in reading.specs if len(namesakes[spec.name]) == 1)
    return Reading(specs=tuple(specs), errors=tuple(sorted(errors, key=lambda reason: reason.where.file)))


def read_spec(text: str, file: SpecFile) -> Reading:
    """Return the specs in the text of one file, or its mistakes."""
    composed = compose(text, str(file.path))
    if not composed.documents and not composed.errors:
        hint = "a spec has at least `function` and `inputs`"
        return Reading(specs=(), errors=(file_error(file.path, "there is nothing in it", hint),))
    return read_documents(composed.documents, file, composed.errors)


def read_documents(documents: Sequence[Node], file: SpecFile, composed: Sequence[SpecError] = ()) -> Reading:
    """Return the specs in the documents of one file, or its mistakes, those from composing the documents included."""
    errors: list[SpecError] = []
    specs: list[Spec] = []
    taken: set[str] = set()
    for number, root in enumerate(documents, start=1):
        cases = _read_document(root, file, errors, taken)
        specs.append(_spec(file, number, cases))
        if len(errors) > MAX_ERRORS:
            break
    errors += _too_many_cases(specs, documents)
    kept = _worth_reading(composed, errors)
    return Reading(specs=() if kept else tuple(specs), errors=kept)


def _by_name(files: Sequence[SpecFile]) -> Mapping[str, Sequence[Path]]:
    groups: dict[str, list[Path]] = {}
    for file in files:
        groups.setdefault(file.name, []).append(file.path)
    return groups


def _same_names(groups: Mapping[str, Sequence[Path]]) -> Iterator[SpecError]:
    """Yield a mistake for every file whose cases would have the same ids as those of another one."""
    for name, paths in groups.items():
        for path in paths if len(paths) > 1 else ():
            others = listed(str(other) for other in paths if other != path)
            problem = f"the ids of its cases would begin with `{name}/`, as do those of {others}"
            hint = "rename one of the files: an id is a spec's path without suffix and leading specs/"
            yield file_error(path, problem, hint)


def _read_file(file: SpecFile, named: Collection[str]) -> Reading:
    """Read a file; a baseline that lies in a folder of specs has neither specs nor mistakes."""
    text = read_text(file.path)
    if isinstance(text, SpecError):
        return Reading(specs=(), errors=(text,))
    if not _is_baseline(text, file):
        return read_spec(text, file)
    mistake = file_error(file.path, "this is a baseline, not a spec", f"pass it with --baseline {file.path}")
    return Reading(specs=(), errors=(mistake,) if str(file.location) in named else ())


def _is_baseline(text: str, file: SpecFile) -> bool:
    if "version" not in text or "known" not in text:  # to compose a large spec takes time
        return False
    documents = compose(text, str(file.path)).documents
    return len(documents) == 1 and isinstance(documents[0].plain, dict) and documents[0].plain.keys() >= _BASELINE


def _read_document(root: Node, file: SpecFile, errors: list[SpecError], taken: set[str]) -> tuple[SpecCase, ...]:
    if root.members is None:
        errors.append(_error(root, Issue(problem=f"expected a mapping, found {found(root.plain)}")))
        return ()
    split = split_cases(root)
    errors += (_error(root, issue) for issue in split.issues)
    remembered: Remembered = {}
    cases: list[SpecCase] = []
    for raw in split.cases:
        try:
            cases.append(_named(read_case(raw, file.location.parent, remembered), taken))
        except BadValueError as reason:
            # The document was told once about a key that no case has.
            said = {(name,) for name in split.absent}
            errors += (_error(raw.node, issue) for issue in reason.issues if issue.at not in said)
        if len(errors) > MAX_ERRORS:
            break
    errors += (_error(node, issue) for node, issue in unused_dims([raw.node for raw in split.cases]))
    return tuple(cases)


def _named(case: SpecCase, taken: set[str]) -> SpecCase:
    target = case.target.name.rpartition(".")[2]
    name = unique_name(case.name or target, target, taken)
    taken.add(name)
    return replace(case, name=name)


def _spec(file: SpecFile, number: int, cases: tuple[SpecCase, ...]) -> Spec:
    return Spec(
        file=str(file.path),
        name=file.name,
        stem=clean_stem(file.path.name),
        document=number,
        cases=cases,
    )


def _too_many_cases(specs: Sequence[Spec], roots: Sequence[Node]) -> Iterator[SpecError]:
    count = 0
    for spec, root in zip(specs, roots, strict=False):
        count += sum(_expanded(case) for case in spec.cases)
        if count > MAX_CASES:
            problem = f"expands to {count:,} cases up to here, at most {MAX_CASES:,} are allowed in one file"
            yield _error(root, Issue(problem=problem, hint="fewer samples, devices or dtypes, or another file"))
            return


def _expanded(case: SpecCase) -> int:
    return case.samples * len(case.dtypes or DEFAULT_DTYPES) * len(case.devices or DEFAULT_DEVICES)


def _error(root: Node, issue: Issue) -> SpecError:
    place = key_place(root, issue.at) if issue.on_key else value_place(root, issue.at)
    return error(place, issue.problem, issue.hint)


def _worth_reading(composed: Sequence[SpecError], validated: Sequence[SpecError]) -> tuple[SpecError, ...]:
    """Return each error once, none that only follows from a value lost to another, and not more than anyone reads."""
    places = {reason.where for reason in composed}
    paths = {reason.path for reason in composed} - {""}
    followed = (reason for reason in validated if reason.where not in places and reason.path not in paths)
    errors = [*composed, *followed]
    kept = tuple({str(reason): reason for reason in sorted(errors, key=_order)}.values())
    if len(kept) <= MAX_ERRORS:
        return kept
    last = kept[MAX_ERRORS - 1].where
    more = error(Place(where=last, path=""), "and more mistakes than are worth listing here")
    return (*kept[:MAX_ERRORS], more)


def _order(reason: SpecError) -> tuple[Where, str, str]:
    return reason.where, reason.path, reason.problem
