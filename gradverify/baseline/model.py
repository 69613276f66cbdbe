"""What a baseline holds."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

Key = tuple[str, str | None, str]  # case, check, code


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One finding that is known."""

    case: str  # id, as it is shown
    check: str | None = None  # None where the case as a whole could not be run
    code: str  # GVnnn
    reason: str
    expires: datetime.date | None = None  # the last day on which it holds

    @property
    def key(self) -> Key:
        return self.case, self.check, self.code


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
    return finding_name(entry.check, entry.code)


def finding_name(check: str | None, code: str) -> str:
    """Return a check and a code as they are shown."""
    return f"{check} {code}" if check else code
