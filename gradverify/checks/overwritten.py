"""GV306 as gradcheck meets it: a backward that writes to its cotangent, as to one that everybody else holds too."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.core.jacobians import Investigation
from gradverify.result import Finding, Verdict


def overwrites(found: Investigation | None) -> Iterator[Finding]:
    """Accuse a backward that has written to the first cotangent it got; costs nothing."""
    if found is not None and found.backward.overwrites:
        text = (
            "backward modifies its cotangent in place; other backwards may get the same tensor, and to that of y.sum() "
            "nobody can write: compute out of place, or on a clone"
        )
        yield Finding(code="GV306", verdict=Verdict.FAIL, message=text)
