"""The report as SARIF 2.1.0, for code scanning: a result per finding that is not as expected, at its backward."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gradverify.catalogue import Section
from gradverify.problem import Problem, problems_of, said_once
from gradverify.report.ci.headline import note, remark, sentence
from gradverify.report.ci.places import Checkout, Place, place_of
from gradverify.report.safe import safe
from gradverify.result import CaseResult, Report, Verdict

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "SRCROOT"
_UNEXPECTED = Section(
    name="unexpected-outcome",
    title="the outcome is not what the spec says",
    group="outcome",
    text="The case passed though its spec expects a failure, or was skipped though its device is required.",
)
_LEVELS = {Verdict.FAIL: "error", Verdict.ERROR: "error"}  # the others are warnings


def to_sarif(report: Report, catalogue: Sequence[Section], checkout: Checkout) -> str:
    """Return the report as SARIF; `catalogue` explains the codes, `checkout` says what paths are relative to."""
    sections = [*(section for section in catalogue if section.name.startswith("GV")), _UNEXPECTED]
    numbers = {section.name: number for number, section in enumerate(sections)}
    driver = {"name": "gradverify", "version": safe(report.gradverify), "rules": [_rule(entry) for entry in sections]}
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {_BASE: {"description": {"text": "the root of the repository"}}},
        "results": [result for case in report.cases for result in _results(case, numbers, checkout)],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(section: Section) -> dict[str, Any]:
    return {
        "id": section.name,
        "shortDescription": {"text": section.title},
        "fullDescription": {"text": " ".join(section.text.partition("\n\n")[0].split())},
        "help": {"text": section.text, "markdown": section.text},
        "properties": {"tags": [section.group]},
    }


def _results(case: CaseResult, numbers: Mapping[str, int], checkout: Checkout) -> Iterator[dict[str, Any]]:
    if case.as_expected:
        return
    place, seen = place_of(case, checkout), set[str]()
    told = "".join(f"; {text}" for text in (remark(case), note(case)) if text)
    for problem in said_once(problems_of(case)):
        rule = problem.code or _UNEXPECTED.name
        yield {
            "ruleId": rule,
            **({"ruleIndex": numbers[rule]} if rule in numbers else {}),
            "level": _LEVELS.get(problem.verdict, "warning"),
            "message": {"text": _unlinked(f"{safe(case.id)}: {sentence(problem)}{told}")},
            "locations": [_location(place, case)] if place else [],
            "partialFingerprints": {"gradverify/v1": _fingerprint(case, problem, seen)},
        }


def _unlinked(text: str) -> str:
    return text.replace("](", "] (")  # [text](address) would be a link, and anyone may have written it


def _location(place: Place, case: CaseResult) -> dict[str, Any]:
    uri = quote(place.file, safe="/", errors="surrogatepass")
    whole = f"file://{'' if uri.startswith('/') else '/'}{uri}"
    artifact = {"uri": uri, "uriBaseId": _BASE} if place.relative else {"uri": whole}
    return {
        "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": place.line}},
        "logicalLocations": [{"fullyQualifiedName": safe(case.function), "kind": "function"}],
    }


def _fingerprint(case: CaseResult, problem: Problem, seen: set[str]) -> str:
    """Return what stays the same while lines move and numbers change; no two results of a case have the same."""
    block = (problem.finding.of, problem.finding.wrt) if problem.finding else ()
    parts = [case.id, problem.check, problem.code, *block, *([problem.changed] if problem.changed else [])]
    found = _digest(parts)
    while found in seen:
        parts.append("again")
        found = _digest(parts)
    seen.add(found)
    return found


def _digest(parts: Sequence[str | None]) -> str:
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()
