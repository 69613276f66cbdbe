"""Memory and time of a function beside those of its reference, and what a spec claims about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one forward and backward takes."""

    saved_bytes: int  # of tensors that the graph keeps for backward, each storage once
    peak_bytes: int  # most bytes allocated at one time, without the inputs
    forward_seconds: float | None = None  # median; None if not timed
    backward_seconds: float | None = None  # likewise


class ComparedWith(StrEnum):
    """What stands beside the function."""

    REFERENCE = "reference"  # the reference that the spec names
    PLAIN_TORCH = "plain torch"  # the function's own forward as plain code, differentiated by torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Memory and time of a function and of what it is compared with; only a claim in a spec depends on them."""

    function: Usage | None = None  # None if it could not be measured
    other: Usage | None = None  # likewise
    compared_with: ComparedWith = ComparedWith.PLAIN_TORCH
    missing: str = ""  # why a usage is missing
    claim: str = ""  # what the spec expects of the saved bytes, as written; "" for nothing
    claim_holds: bool = True  # also False if it could not be judged


class Comparison(StrEnum):
    """How a number of bytes is compared."""

    AT_MOST = "<="
    LESS = "<"
    EQUAL = "=="
    AT_LEAST = ">="
    MORE = ">"


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesClaim:
    """A limit on the bytes kept for backward; exactly one of `size` and `factor` is set."""

    written: str  # as in the spec
    comparison: Comparison
    size: float | None = None  # bytes
    factor: float | None = None  # times the bytes of the reference or, without one, of plain torch
