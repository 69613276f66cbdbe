"""What a baseline holds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from gradverify.result import Index

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
    columns: tuple[Index, ...] | None = None  # input elements found in a probed Jacobian; None where it was not probed
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

    A cause is compared only where both have one: without a name it may be the same. The search in a probed Jacobian
    ends early, so that its total says little: its columns must be known, and its cause must not be lost.
    """
    if now.total > known.total:
        return f"{now.total:,} entries, known are {known.total:,}"
    if known.cause and known.cause != now.cause and (now.cause or now.columns is not None):
        return f"cause {now.cause or 'not found'}, known is {known.cause}"
    return "" if now.columns is None else _new_columns(known, now.columns)


def _new_columns(known: Entry, columns: tuple[Index, ...]) -> str:
    if not columns:
        return "probed, and no column was found"
    if known.columns is None:
        return "probed, and the entry has no `columns`; write the baseline again"
    new = [list(column) for column in columns if column not in known.columns]
    return f"column {new[0]} is not in `columns`{f', and {len(new) - 1:,} more' if new[1:] else ''}" if new else ""


def _block(entry: Entry) -> str:
    if entry.of and entry.wrt:
        return f"d {entry.of} / d {entry.wrt}"
    return f"of {entry.of}" if entry.of else f"by {entry.wrt}" if entry.wrt else ""
