"""Subjects written after the changes that explore makes were settled."""

from __future__ import annotations

from benchmarks.hidden_subject import Hidden

LATER: tuple[Hidden, ...] = ()
