"""What a baseline holds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

Key = tuple[str, str | None, str, str | None, str | None]  # case, check, code, of, wrt


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finding that is known."""

    case: str  # id, as it is shown
    check: str | None = None  # None where the case as a whole could not be run
    code: str  # GVnnn
    of: str | None = None  # output concerned, as it is shown
    wrt: str | None = None  # input concerned, as it is shown
    total: int  # how many entries are wrong; 1 for a finding that counts none
    cause: str | None = None  # named pattern that explains them
    reason: str
    expires: datetime.date | None = None  # the last day on which it holds

    @property
    def key(self) -> Key:
        return self.case, self.check, self.code, self.of, self.wrt


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """All that is known; no two entries have the same key."""

    entries: tuple[Entry, ...] = ()


NOTHING_KNOWN = Baseline()


def has_expired(entry: Entry, today: datetime.date) -> bool:
    """Tell whether an entry holds no longer."""
    return entry.expires is not None and entry.expires < today


def described(entry: Entry) -> str:
    """Return which finding an entry is about, without its case."""
    return " ".join(part for part in (entry.check, entry.code, _block(entry)) if part)


def excess(known: Entry, now: Entry) -> str:
    """Return in what a finding goes beyond the entry that knows it, "" where it does not.

    A cause is compared only where both have one: without a name it may be the same.
    """
    if now.total > known.total:
        return f"{now.total:,} entries, known are {known.total:,}"
    if known.cause and now.cause and known.cause != now.cause:
        return f"cause {now.cause}, known is {known.cause}"
    return ""


def _block(entry: Entry) -> str:
    if entry.of and entry.wrt:
        return f"d {entry.of} / d {entry.wrt}"
    return f"of {entry.of}" if entry.of else f"by {entry.wrt}" if entry.wrt else ""
