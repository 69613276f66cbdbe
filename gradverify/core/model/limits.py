"""Limits of time and memory: when a case has to end, and how many numbers are processed at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gradverify.result import CheckResult

_EARLY, _EARLY_PART = 1.0, 0.1  # seconds, and fraction of the limit: a worker must report before it is killed
_LARGEST_THRESHOLD = (1 << 25) - (1 << 16)  # bytes: glibc's limit of 32 MiB, less 64 KiB for its headers
SUBSET = 1 << 14  # numbers whose median stands for that of more
FEW_INPUTS = 32  # input coordinates: with fewer, each is perturbed alone, and no sparsity is looked for
HELD = 2_000_000  # numbers held in memory at a time: 16 MB
LARGEST = 40_000_000  # numbers in the largest tensors that are computed at all: 320 MB
AT_ONCE = 1 << 17  # numbers in the points and outputs of one call: for more, single calls cost nothing extra
_PORTION_ON_CPU = 1 << 15  # numbers per portion on the CPU: a dozen vectors of this length fit in a cache
_PORTIONS_OF_ROWS = 2  # portions: that many rows of a matrix are quicker processed together
_PORTION_ELSEWHERE = 1 << 20  # numbers per portion on other devices, where launching a kernel costs as much for fewer


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


def uninitialised_rows(rows: int, like: Tensor) -> Tensor:
    """Return uninitialised float64 numbers on the device of `like` (n,); (rows, n).

    On the CPU numpy allocates them, since it requests huge pages: page faults on small pages would take longer than
    computing with the numbers.
    """
    if like.device.type == "cpu":
        return torch.from_numpy(np.empty((rows, like.numel())))
    return torch.empty(rows, like.numel(), dtype=torch.float64, device=like.device)


@cache
def keep_freed_memory() -> None:
    """Make glibc keep up to 64 MiB of freed memory for later tensors instead of returning it to the system.

    A check allocates thousands of tensors of a few hundred kilobytes. By default, each may get fresh pages, and their
    page faults take longer than computing with the tensor. glibc adapts to the largest block freed so far, up to
    32 MiB, and keeps twice as much (mallopt(3), M_MMAP_THRESHOLD). The block freed here is never written to. Other C
    libraries ignore it.
    """
    torch.empty(_LARGEST_THRESHOLD, dtype=torch.uint8, device="cpu")


def portion(like: Tensor) -> int:
    """Return how many numbers to process at a time on the device of `like`."""
    return _PORTION_ON_CPU if like.device.type == "cpu" else _PORTION_ELSEWHERE


def portions(like: Tensor) -> list[slice]:
    """Return slices of `portion` entries each that cover a vector (n,)."""
    width = portion(like)
    return [slice(start, start + width) for start in range(0, like.numel(), width)]


def rows_at_once(like: Tensor) -> int:
    """Return how many rows of a matrix to process together: as many as fit in two portions, at least 1."""
    return max(1, _PORTIONS_OF_ROWS * portion(like) // max(1, like.shape[1]))


def chunks(chosen: Tensor, numbers_per_move: int) -> Iterator[Tensor]:
    """Yield parts of `chosen`, a vector of column groups, so that each part needs at most `HELD` numbers."""
    size = max(1, HELD // max(1, numbers_per_move))
    yield from torch.split(chosen, size) if len(chosen) else ()
