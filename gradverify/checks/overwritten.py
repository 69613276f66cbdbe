"""GV306 in gradcheck: a backward that writes to its cotangent, which other code may hold too."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.checks.contract.cotangent_writes import modified_message
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.core.jacobians import Investigation
from gradverify.result import Finding, Verdict


def overwrites(found: Investigation | None) -> Iterator[Finding]:
    """Yield a fail if backward wrote to the first cotangent it was given; costs nothing."""
    if found is not None and found.backward.overwrites:
        name = next((class_of(node).__name__ for node in custom_nodes(found.backward.tape)), "an output")
        yield Finding(code="GV306", verdict=Verdict.FAIL, message=modified_message(name))
