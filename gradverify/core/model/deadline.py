"""The time limit of a case, looked at before every call of user code."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gradverify.result import CheckResult

_EARLY, _EARLY_PART = 1.0, 0.1  # seconds, and part of the limit: a worker has to answer before it is killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A time limit that has begun."""

    at: float  # when it ends, by time.monotonic()
    seconds: float  # the limit as it was set


class OutOfTime(KeyboardInterrupt):
    """The time limit has passed; handled as an interrupt is, so that no handler of errors in user code takes it."""

    def __init__(self, seconds: float, found: CheckResult | None = None) -> None:
        self.seconds = seconds  # the limit
        self.found = found  # what the check had found by then, None where that is nothing
        super().__init__(f"timed out after {seconds:g} s")


def deadline_in(seconds: float) -> Deadline:
    """Return a deadline that ends in so many seconds."""
    return Deadline(at=time.monotonic() + seconds, seconds=seconds)


def deadline_before_kill(seconds: float) -> Deadline:
    """Return a deadline a little before a worker is killed that began now and may take so many seconds."""
    early = min(_EARLY, _EARLY_PART * seconds)
    return Deadline(at=time.monotonic() + seconds - early, seconds=seconds)


def require_time(deadline: Deadline | None) -> None:
    """Raise OutOfTime if the deadline has passed."""
    if deadline is not None and time.monotonic() >= deadline.at:
        raise OutOfTime(deadline.seconds)


@contextmanager
def keeping(found: CheckResult) -> Iterator[None]:
    """Attach `found` to an OutOfTime that leaves this block without a result."""
    try:
        yield
    except OutOfTime as end:
        if end.found is None:
            end.found = found
        raise
