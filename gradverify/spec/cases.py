"""A document to the mappings of its cases, each merged over the keys above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradverify.spec.identity import case_name_issues
from gradverify.spec.keys import Document
from gradverify.spec.limits import MAX_MERGED_KEYS
from gradverify.spec.merge import merge_case
from gradverify.spec.node import Node, mapping_node
from gradverify.spec.readers import Issue
from gradverify.spec.validate import missing
from gradverify.spec.wording import found, misspelt

REQUIRED = ("function", "inputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCase:
    """One case as it was written."""

    name: str | None  # None where the document has no `cases`
    line: int
    node: Node  # every key that holds for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A document taken apart."""

    cases: tuple[RawCase, ...]
    issues: tuple[Issue, ...]  # of the document
    absent: tuple[str, ...]  # required keys that no case has; `issues` names each once


def split_cases(root: Node) -> Split:
    """Return the cases of a document, which is a mapping."""
    assert root.members is not None
    above = mapping_node(root.where, {name: member for name, member in root.members.items() if name != "cases"})
    issues: list[Issue] = []
    written = root.members.get("cases")
    cases = tuple(_cases(above, written.node, issues)) if written else (_lone(above),)
    absent = tuple(name for name in REQUIRED if not any(name in (case.node.members or {}) for case in cases))
    if cases:
        known = tuple(Document.model_fields)
        said = (name for name in absent if not misspelt(name, above.plain, known))
        issues += (missing(name) for name in said)
    # Where `cases` is broken, the keys above can be checked all the same.
    return Split(cases=cases or (_lone(above),), issues=tuple(issues), absent=absent)


def _lone(above: Node) -> RawCase:
    return RawCase(name=None, line=above.where.line, node=above)


def _cases(above: Node, cases: Node, issues: list[Issue]) -> Iterator[RawCase]:
    if not cases.members:
        what = "an empty mapping" if cases.members is not None else found(cases.plain)
        issues.append(Issue(at=("cases",), problem=f"expected a mapping of names to cases, found {what}"))
        return
    size = 0
    for name, member in cases.members.items():
        issues += (_below(issue, name) for issue in case_name_issues(name))
        if member.node.members is None and member.node.plain is not None:
            problem = f"expected a mapping, found {found(member.node.plain)}"
            issues.append(Issue(at=("cases", name), problem=problem))
            continue
        node = merge_case(above, mapping_node(member.where, member.node.members or {}), f"cases.{name}")
        size += 1 + node.keys
        if size > MAX_MERGED_KEYS:
            problem = f"the keys above and the cases make more than {MAX_MERGED_KEYS:,} keys together"
            issues.append(Issue(at=("cases", name), on_key=True, problem=problem, hint="split the file"))
            return
        yield RawCase(name=name, line=member.where.line, node=node)


def _below(issue: Issue, name: str) -> Issue:
    return Issue(at=("cases", name), on_key=issue.on_key, problem=issue.problem, hint=issue.hint)
