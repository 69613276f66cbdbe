"""Advice for a function that gets numbers of one dtype and computes in a narrower one inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradverify.checks.reference.compare import Compared
from gradverify.core.model.problem import NARROW
from gradverify.result import Finding

_CODE = "GV701"
_FEWEST, _LOOKED_AT = 6, 1000  # different values among the first; fewer may be numbers of a narrow dtype by chance
_COUNTED = 256  # times values that count something is a whole number


def with_advice(findings: Sequence[Finding], outputs: Sequence[Compared]) -> tuple[Finding, ...]:
    """Return the findings, those on outputs whose values all fit into a narrower dtype with advice in the message."""
    narrow = {each.named.name: name for each in outputs if (name := _narrower(each)) is not None}
    return tuple(
        replace(finding, message=f"{finding.message}{_advice(narrow[finding.of])}")
        if finding.code == _CODE and finding.of in narrow
        else finding
        for finding in findings
    )


def _advice(name: str) -> str:
    return f"; all are {name} numbers: if it computes in {name} inside, set `dtypes: [{name}]`"


def _narrower(output: Compared) -> str | None:
    """Return the narrowest dtype that all values fit into.

    None if that is the output's own, or if the values are few, or multiples of 2^-8, as those that count something.
    """
    values, own = output.value, output.named.tensor.dtype
    narrower = [dtype for dtype in NARROW if own.is_floating_point and _eps(dtype) > _eps(own)]
    counted = bool((_COUNTED * values == (_COUNTED * values).round()).all())
    if not narrower or counted or len(set(values[:_LOOKED_AT].tolist())) < _FEWEST:
        return None
    found = next((dtype for dtype in narrower if bool((values == values.to(dtype)).all())), None)
    return None if found is None else str(found).removeprefix("torch.")


def _eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps
