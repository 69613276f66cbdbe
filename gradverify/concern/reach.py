"""The files that a case depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradverify.case import Case, DataFile, Input, ListInput, Target, TensorInput
from gradverify.concern.imports import Import, imports_of
from gradverify.concern.project import (
    Project,
    candidates,
    elsewhere,
    is_compiled,
    is_inside,
    places_of,
    roots_of,
)
from gradverify.spec.signature import targets_of
from gradverify.spec.target import split_data_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a case depends on in a project."""

    files: frozenset[Path] = frozenset()  # absolute; also files that are not there and would be imported if they were
    there: tuple[Path, ...] = ()  # those whose imports are still to be followed
    folders: frozenset[Path] = frozenset()  # packages whose every module may be imported: `from package import *`
    unclear: tuple[str, ...] = ()  # sentences on why there may be more
    native: bool = False  # True if it builds or loads compiled code


Step = tuple[Path, tuple[Path, ...]]  # a file, and the folders that its absolute imports are searched in


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was found out already; the dictionaries are filled while cases are looked at."""

    steps: dict[Step, Reach] = field(default_factory=dict)  # of one file alone: itself and what it names
    modules: dict[str, Reach] = field(default_factory=dict)  # of targets, by file or dotted name


def reach_of(case: Case, project: Project, known: Known) -> Reach:
    """Return the files of the project that a case depends on."""
    own = Reach(files=frozenset(place for name in (case.spec, *_data_files(case)) for place in places_of(name)))
    return _union([own, *(_reach_of_target(target, project, known) for target in targets_of(case))])


def _reach_of_target(target: Target, project: Project, known: Known) -> Reach:
    name = target.file or str(target.module)
    if name not in known.modules:
        found = _from_file(target.file, project, known) if target.file else _from_module(name, project, known)
        known.modules[name] = found
    return known.modules[name]


def _from_file(file: str, project: Project, known: Known) -> Reach:
    start = Path(os.path.realpath(file))
    followed = _followed([start], roots_of(start.parent, project), project, known)
    return _union([Reach(files=places_of(file)), followed])


def _from_module(name: str, project: Project, known: Known) -> Reach:
    roots = roots_of(project.here, project)
    named = _named_by(Import(module=name), Path(), roots, project)
    reaches = [Reach(files=frozenset(named)), _followed(named, roots, project, known)]
    if not any(file.exists() for file in named) and elsewhere(name.partition(".")[0]) is None:
        reaches.append(Reach(unclear=(f"the module {name} was not found",)))
    return _union(reaches)


def _followed(start: Sequence[Path], roots: tuple[Path, ...], project: Project, known: Known) -> Reach:
    """Return the reach of files and of everything of the project that they import."""
    waiting = [file for file in start if file.is_file()]
    seen: dict[Path, Reach] = {}
    while waiting:
        file = waiting.pop()
        if file not in seen:
            key = (file, roots)
            if key not in known.steps:
                known.steps[key] = _step(file, roots, project)
            seen[file] = known.steps[key]
            waiting += [other for other in seen[file].there if other not in seen]
    return _union(list(seen.values()))


def _step(file: Path, roots: tuple[Path, ...], project: Project) -> Reach:
    """Return a file and the files that its own imports name."""
    if is_compiled(file):
        return Reach(files=places_of(file), native=True)
    imports = imports_of(file)
    named = {name for found in imports.found for name in _named_by(found, file.parent, roots, project)}
    stars = {package for found in imports.found for package in _packages(found, file.parent, roots, project)}
    named |= {module for package in stars if package.is_dir() for module in package.glob("*.py")}
    return Reach(
        files=places_of(file) | named,
        there=tuple(sorted(name for name in named if name.is_file())),
        folders=frozenset(stars),
        unclear=(f"{_shown(file, project)} {imports.unclear}",) if imports.unclear else (),
        native=imports.native,
    )


def _named_by(found: Import, folder: Path, roots: tuple[Path, ...], project: Project) -> list[Path]:
    """Return the files that one import may read, there or not. `folder` is that of the importing file."""
    parts = found.module.split(".") if found.module else []
    bases = _bases(found, folder, roots, project)
    files = [*candidates(parts, bases)] if parts else [base / "__init__.py" for base in bases]
    for name in found.names:
        files += candidates([*parts, name], bases) if name != "*" else ()
    return files


def _packages(found: Import, folder: Path, roots: tuple[Path, ...], project: Project) -> list[Path]:
    """Return the folders of the package that `from package import *` names, none for any other import."""
    if "*" not in found.names:
        return []
    return [base.joinpath(*found.module.split(".")) for base in _bases(found, folder, roots, project)]


def _bases(found: Import, folder: Path, roots: tuple[Path, ...], project: Project) -> tuple[Path, ...]:
    """Return the folders of the project in which the first part of an import is searched."""
    if found.level:
        above = [folder, *folder.parents]
        bases: tuple[Path, ...] = tuple(above[found.level - 1 : found.level])
    else:
        outside = elsewhere(found.module.partition(".")[0])
        bases = roots if outside is None or outside in roots else (*roots, outside)
    return tuple(base for base in bases if is_inside(base, project))


def _union(reaches: Sequence[Reach]) -> Reach:
    return Reach(
        files=frozenset[Path]().union(*(reach.files for reach in reaches)),
        folders=frozenset[Path]().union(*(reach.folders for reach in reaches)),
        unclear=tuple(dict.fromkeys(text for reach in reaches for text in reach.unclear)),
        native=any(reach.native for reach in reaches),
    )


def _data_files(case: Case) -> Iterator[str]:
    for given in case.inputs.values():
        yield from _data_files_in(given)


def _data_files_in(given: Input) -> Iterator[str]:
    if isinstance(given, TensorInput) and isinstance(given.origin, DataFile):
        yield split_data_file(given.origin.path)[0]
    elif isinstance(given, ListInput):
        for item in given.items:
            yield from _data_files_in(item)


def _shown(file: Path, project: Project) -> str:
    """Return a file's path relative to the working directory, or absolute outside of it."""
    return str(file.relative_to(project.here) if file.is_relative_to(project.here) else file)
