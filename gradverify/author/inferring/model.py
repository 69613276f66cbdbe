"""What is asked about a function, and what came of trying inputs. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gradverify.case import Target

_NO_MODULE = re.compile(r"No module named '([^']+)'[^;]*")  # what Python says, without a hint after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A function whose inputs are to be inferred."""

    target: Target
    draw_key: str  # of the case that the spec will hold
    dtype: str = "float64"  # tried first
    seconds: float = 5.0  # that trying may take


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """Inputs at which forward and backward run, or the reason why there are none."""

    inputs: Mapping[str, Any]  # as a spec has them; if there is a reason, those that are known
    dims: Mapping[str, int] = field(default_factory=dict)  # names of sizes that inputs share
    dtype: str = "float64"
    interpreted: bool = False  # they run with Triton's interpreter
    reason: str = ""  # why none were found; "" if some were


def with_advice(reason: str) -> str:
    """Return the reason for a draft with what to do: inputs do not help where a module is missing."""
    missing = _NO_MODULE.search(reason)
    if missing is not None and missing.end() == len(reason):
        return f"{reason}; `{missing[1]}` must be installed"
    return f"{reason}; say the inputs"
