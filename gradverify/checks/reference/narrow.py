"""Advice for a function that gets float64 and computes in float32 inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.reference.compare import Compared
from gradverify.result import Finding

_CODE = "GV701"
_FEWEST, _LOOKED_AT = 6, 1000  # different values among the first; fewer may be numbers of float32 by chance
_ADVICE = "; all are float32 numbers: if it computes in float32 inside, set `dtypes: [float32]`"


def with_advice(findings: Sequence[Finding], outputs: Sequence[Compared]) -> tuple[Finding, ...]:
    """Return the findings, those on float64 outputs whose values all fit into float32 with advice in the message."""
    narrow = {each.named.name for each in outputs if _is_narrow(each)}
    return tuple(
        replace(finding, message=f"{finding.message}{_ADVICE}")
        if finding.code == _CODE and finding.of in narrow
        else finding
        for finding in findings
    )


def _is_narrow(output: Compared) -> bool:
    return output.named.tensor.dtype is torch.float64 and _fits(output.value)


def _fits(values: Tensor) -> bool:
    return bool((values == values.float()).all()) and len(set(values[:_LOOKED_AT].tolist())) >= _FEWEST
