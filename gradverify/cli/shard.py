"""Split the cases into shards, one for each of several jobs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from gradverify.cli.exits import UsageProblem
from gradverify.cli.select import T
from gradverify.result import Shard

_WRITTEN = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def shard_of(text: str) -> Shard:
    """Return the shard written as `2/5`. Raises UsageProblem."""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageProblem(f"--shard {text}: expected I/N, as 1/4, with I from 1 to N")
    return Shard(index=int(match[1]), of=int(match[2]))


def part_of(cases: Sequence[T], shard: Shard) -> tuple[T, ...]:
    """Return the cases of one shard. A case's shard depends only on its id and the number of shards."""
    return tuple(case for case in cases if _hash(case.id) % shard.of == shard.index - 1)


def _hash(case_id: str) -> int:
    digest = hashlib.blake2b(case_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
