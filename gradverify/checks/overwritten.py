"""GV306 as gradcheck meets it: a backward that writes to its cotangent, as to one that everybody else holds too."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.checks.contract.cotangents_kept import modified
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.core.jacobians import Investigation
from gradverify.result import Finding, Verdict


def overwrites(found: Investigation | None) -> Iterator[Finding]:
    """Accuse a backward that has written to the first cotangent it got; costs nothing."""
    if found is not None and found.backward.overwrites:
        name = next((class_of(node).__name__ for node in custom_nodes(found.backward.tape)), "an output")
        yield Finding(code="GV306", verdict=Verdict.FAIL, message=modified(name))
