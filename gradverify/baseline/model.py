"""The entries of a baseline."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from gradverify.result import Index

Key = tuple[str, str | None, str, str | None, str | None, str | None]  # case, check, code, of, wrt, changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One known finding."""

    case: str  # id as printed
    check: str | None = None  # None if the whole case could not be run
    code: str  # GVnnn
    of: str | None = None  # output, as printed
    wrt: str | None = None  # input, as printed
    changed: str | None = None  # how the inputs differ from those written, as printed; None where they do not
    total: int  # number of wrong Jacobian entries; 1 for other findings
    columns: tuple[Index, ...] | None = None  # wrong input elements of a probed Jacobian; None if not probed
    cause: str | None = None  # cause named for the finding
    reason: str
    expires: datetime.date | None = None  # the last day on which the entry applies

    @property
    def key(self) -> Key:
        return self.case, self.check, self.code, self.of, self.wrt, self.changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """All known findings. No two entries have the same key."""

    entries: tuple[Entry, ...] = ()


NOTHING_KNOWN = Baseline()


def has_expired(entry: Entry, today: datetime.date) -> bool:
    """True if `today` is after the entry's last day."""
    return entry.expires is not None and entry.expires < today


def described(entry: Entry) -> str:
    """Return check, code, block and changed inputs of an entry as text, without its case."""
    at = f"at {entry.changed}" if entry.changed else ""
    return " ".join(part for part in (entry.check, entry.code, _block(entry), at) if part)


def excess(known: Entry, now: Entry) -> str:
    """Return how a finding exceeds its entry, "" if it does not.

    Causes are compared only if both are named: an unnamed cause may be the same. The search in a probed Jacobian does
    not find all wrong entries: instead of the total, its columns must be known, and a named cause must be named again.
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
