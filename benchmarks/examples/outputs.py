"""Run the examples of all pages, and return what `gradverify run --brief` prints for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.examples.source import Example, examples, mended_code, source_of, spec_of, wrong_code
from gradverify.catalogue import Section, sections
from gradverify.problem import problems_of
from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.case_fix import case_fix
from gradverify.report.lines import to_text
from gradverify.report.screen import Detail, Screen
from gradverify.result import CaseResult, Verdict
from gradverify.run.options import RunOptions
from gradverify.run.session import run_cases
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

_MENDED = "-mended"


def outputs(only: tuple[str, ...] = ()) -> tuple[dict[str, str], list[str]]:
    """Return what the wrong example of each code or cause prints, and a sentence for each that is not as it should be.

    The output of a wrong example names its code or cause, and a mended one passes.
    """
    pages = {section.name: section for section in sections()}
    chosen = {name: example for name, example in examples().items() if not only or name in only}
    with tempfile.TemporaryDirectory() as folder:
        codes = _written(Path(folder), chosen, pages)
        results = _results(Path(folder), codes, chosen)
    printed = {name: printed_of(results[name], name) for name in chosen}
    amiss = [
        f"{name}: the example does not show it:\n{printed[name]}" for name in chosen if not _shows(results[name], name)
    ]
    amiss += [
        f"{name}: the mended example does not pass:\n{to_text(case_fix(result, Screen()))}"
        for name, result in results.items()
        if name.endswith(_MENDED) and result.verdict is not Verdict.PASS
    ]
    return printed, amiss


def printed_of(result: CaseResult, name: str) -> str:
    """Return what --brief prints of one code or cause; a remark fails nothing, and is what -v prints."""
    checks = tuple(
        replace(check, findings=tuple(found for found in check.findings if name in (found.code, found.cause)))
        for check in result.checks
    )
    alone = replace(
        result, checks=checks, spec="", source=None, rerun=(), measured=None
    )  # the reader has no such files
    if result.verdict is Verdict.PASS:
        return to_text(case_detail(alone, Screen(), DetailOptions(detail=Detail.VERBOSE)))
    return to_text(case_fix(alone, Screen()))


def _shows(result: CaseResult, name: str) -> bool:
    """Return True if a finding of the result, or what kept it from being checked, has this code or cause."""
    found = {name for check in result.checks for finding in check.findings for name in (finding.code, finding.cause)}
    return name in found or name in {problem.code for problem in problems_of(result)}


def _written(folder: Path, chosen: Mapping[str, Example], pages: Mapping[str, Section]) -> tuple[str, ...]:
    """Write a module and a spec for each wrong and each mended example into `folder`; return the names of the specs."""
    names: list[str] = []
    for name, example in chosen.items():
        wrong = wrong_code(pages[name])
        codes = {name: wrong}
        if example.mended and mended_code(pages[name]):
            codes[name + _MENDED] = mended_code(pages[name])
        for stem, code in codes.items():
            module = stem.replace("-", "_") + ".py"
            (folder / module).write_text(source_of(example, code, wrong), encoding="utf-8")
            (folder / f"{stem}.yaml").write_text(spec_of(example, module, code), encoding="utf-8")
        names += codes
    return tuple(names)


def _results(folder: Path, names: Iterable[str], chosen: Mapping[str, Example]) -> dict[str, CaseResult]:
    """Run the specs of these names in `folder`, those that end their process in a worker; results by name."""
    groups: dict[int, list[Path]] = {}
    for name in names:
        example = chosen[name.removesuffix(_MENDED)]
        groups.setdefault(1 if example.worker else 0, []).append(Path(f"{name}.yaml"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        found = [case for workers, specs in groups.items() for case in _run(specs, workers)]
    finally:
        os.chdir(before)
    return {case.id.partition("/")[0]: case for case in found}


def _run(files: list[Path], workers: int) -> tuple[CaseResult, ...]:
    """Run specs in this process, or in a worker, and return the results."""
    specs = read_paths(files).specs
    return run_cases(expand(specs), specs, RunOptions(workers=workers), lambda event: None).report.cases
