"""Run the examples of all pages, and return what `gradverify run --brief` prints for them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.examples.source import Example, examples, mended_code, source_of, spec_of, wrong_code
from gradverify.catalogue import Section, sections
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
        results = _results(Path(folder), chosen, pages)
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
    """Return True if a finding of the result has this code or cause."""
    return any(name in (found.code, found.cause) for check in result.checks for found in check.findings)


def _results(folder: Path, chosen: Mapping[str, Example], pages: Mapping[str, Section]) -> dict[str, CaseResult]:
    """Write a file and a spec for each example into `folder`, run them all in this process, and return the results."""
    for name, example in chosen.items():
        wrong = wrong_code(pages[name])
        sources = {name: source_of(example, wrong)}
        if example.mended and mended_code(pages[name]):
            sources[name + _MENDED] = source_of(example, mended_code(pages[name]), wrong)
        for stem, source in sources.items():
            module = stem.replace("-", "_") + ".py"
            (folder / module).write_text(source, encoding="utf-8")
            (folder / f"{stem}.yaml").write_text(spec_of(example, module), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return _run()
    finally:
        os.chdir(before)


def _run() -> dict[str, CaseResult]:
    """Run every spec of the working directory, and return the results by the names of the specs."""
    specs = read_paths([Path()]).specs
    outcome = run_cases(expand(specs), specs, RunOptions(workers=0), lambda event: None)
    return {case.id.partition("/")[0]: case for case in outcome.report.cases}
