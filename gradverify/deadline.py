"""The time limit of a case: when it ends, and the exception that ends it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradverify.result import CheckResult

_EARLY, _EARLY_PART = 1.0, 0.1  # seconds, and fraction of the limit: a worker must report before it is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A time limit that is running."""

    at: float  # when it ends, by time.monotonic()
    seconds: float  # the time limit
    share_of: float | None = None  # seconds that the limit is a share of; None if it is no share


class OutOfTime(KeyboardInterrupt):
    """The time limit has passed; a KeyboardInterrupt, so that `except Exception` in user code does not catch it."""

    def __init__(self, deadline: Deadline, found: CheckResult | None = None, reached: str = "") -> None:
        self.deadline = deadline
        self.found = found  # partial result of the check, None if it has none
        whole = "" if deadline.share_of is None else f" of {deadline.share_of:g}"
        super().__init__(f"timed out after {deadline.seconds:g}{whole} s{reached and f': {reached}'}")


def deadline_in(seconds: float) -> Deadline:
    """Return a deadline that ends `seconds` from now."""
    return Deadline(at=time.monotonic() + seconds, seconds=seconds)


def deadline_before_kill(seconds: float) -> Deadline:
    """Return a deadline shortly before a worker that starts now and may run for `seconds` is killed."""
    early = min(_EARLY, _EARLY_PART * seconds)
    return Deadline(at=time.monotonic() + seconds - early, seconds=seconds)


def seconds_left(deadline: Deadline | None) -> float:
    """Return the seconds until the deadline, infinity if there is none."""
    return math.inf if deadline is None else deadline.at - time.monotonic()


def require_time(deadline: Deadline | None) -> None:
    """Raise OutOfTime if the deadline has passed."""
    if deadline is not None and seconds_left(deadline) <= 0:
        raise OutOfTime(deadline)


def is_late(deadline: Deadline | None) -> bool:
    """Return True if more than half of the time limit has passed."""
    return deadline is not None and seconds_left(deadline) < deadline.seconds / 2


@contextmanager
def keeping(found: CheckResult) -> Iterator[None]:
    """Attach `found` to an OutOfTime raised in this block, unless it already has a result."""
    try:
        yield
    except OutOfTime as error:
        if error.found is None:
            error.found = found
        raise
