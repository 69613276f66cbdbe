"""Which dtypes forward and backward go through."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradverify.checks.contract.subject import Subject, answer_of, graph
from gradverify.core.model.cast_trace import CastTrace
from gradverify.errors import EvaluationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """Floating dtypes that values were cast to or came from, each narrower than what was cast or made of it."""

    forward: frozenset[torch.dtype] = frozenset()
    backward: frozenset[torch.dtype] = frozenset()

    @property
    def seen(self) -> frozenset[torch.dtype]:
        """Those of both."""
        return self.forward | self.backward


def casts_of(subject: Subject) -> Casts:
    """Watch one forward and one backward; nothing is seen where the function cannot be watched."""
    forward, backward = CastTrace(), CastTrace()
    try:
        with forward:
            tape = graph(subject)
        with backward:
            answer_of(subject, tape, subject.cotangents)
    except (EvaluationError, RuntimeError):
        return Casts()
    return Casts(forward=frozenset(forward.down | forward.up), backward=frozenset(backward.down | backward.up))
