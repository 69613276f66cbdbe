"""GV306: backward must not modify its cotangent, because autograd may pass the same tensor to other nodes."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradverify.checks.contract.nodes import Exchange, class_of
from gradverify.checks.contract.subject import Subject
from gradverify.checks.contract.wording import failure
from gradverify.result import Finding


def findings(subject: Subject) -> Iterator[Finding]:
    """GV306: backward does not modify its cotangents in place."""
    for exchange in subject.exchanges:
        for number in _modified(exchange):
            name = class_of(exchange.node).__name__
            which = f"cotangent {number}" if len(exchange.received) > 1 else "its cotangent"
            yield failure("GV306", modified_message(name, which))


def modified_message(name: str, which: str = "its cotangent") -> str:
    """Return the message for a Function whose backward modifies a cotangent."""
    return (
        f"backward of {name} modifies {which} in place; other backwards may get the same tensor: "
        "compute out of place, or on a clone"
    )


def _modified(exchange: Exchange) -> Iterator[int]:
    """Yield the numbers of the cotangents with another version or other values than before the call."""
    for number, (after, before, version) in enumerate(
        zip(exchange.received, exchange.before, exchange.versions, strict=True)
    ):
        if before is None:
            continue
        same = torch.equal(after.nan_to_num(), before.nan_to_num())
        if after._version != version or not same:
            yield number
