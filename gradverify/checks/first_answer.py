"""GV407 in gradcheck: a backward whose first answer is another than later ones.

A kernel that is tuned when it first meets a size runs once for each configuration, and if it adds to its output, the
first gradient is a multiple of the right one. What is compared with differences comes from later calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradverify.checks.contract.noise import largest
from gradverify.checks.contract.wording import SIMILAR_EXPONENT
from gradverify.checks.wording import distinguishable, index_text
from gradverify.core.backward.vjps import Reuse, flat_vjp
from gradverify.core.jacobians import Investigation
from gradverify.core.model.coordinates import blocks
from gradverify.nested import Named
from gradverify.result import Finding, Verdict


def wrong_at_first(found: Investigation | None) -> Iterator[Finding]:
    """Yield a fail for every input whose first gradient no later call gives; costs a forward and a vjp, if anything.

    Only asked if the first graph did not give it again. Raises EvaluationError.
    """
    if found is None or found.backward.graph.reuse is not Reuse.FRESH or found.backward.problem.fresh_graphs:
        return
    cotangent, first = found.backward.known_vjp
    again = flat_vjp(found.backward, cotangent)  # on a graph of its own
    primals = found.backward.problem.primals
    for block in blocks(Named(name=primal.name, tensor=primal.tensor) for primal in primals):
        one, other = first[block.coordinates], again[block.coordinates]
        deviation = (one - other).abs()
        eps = torch.finfo(primals[block.tensor].tensor.dtype).eps
        wrong = other.isfinite() & ~(deviation <= eps**SIMILAR_EXPONENT * largest(other))
        if bool(wrong.any()):
            worst = int(torch.where(wrong, deviation.nan_to_num(torch.inf, torch.inf), -1.0).argmax())
            before, later = distinguishable(float(one[worst]), float(other[worst]))
            text = (
                "backward is not deterministic: its first answer to a random cotangent is "
                f"{before} by {block.name}{index_text(block.index(worst))}, and {later} when asked again"
            )
            yield Finding(code="GV407", verdict=Verdict.FAIL, wrt=block.name, message=text, total=int(wrong.sum()))
