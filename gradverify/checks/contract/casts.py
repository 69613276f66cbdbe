"""Dtypes that forward and backward cast to or from."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gradverify.checks.contract.subject import Subject, gradients_of, graph_for_vjp
from gradverify.errors import EvaluationError
from gradverify.interception import CastTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """Floating dtypes in casts of forward and backward: of each cast, the narrower one."""

    forward: frozenset[torch.dtype] = frozenset()
    backward: frozenset[torch.dtype] = frozenset()

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """Dtypes of both."""
        return self.forward | self.backward


def casts_of(subject: Subject) -> Casts:
    """Return the casts of one forward and one backward; empty if tracing the function fails."""
    forward, backward = CastTrace(), CastTrace()
    try:
        with forward:
            tape = graph_for_vjp(subject)
        with backward:
            gradients_of(subject, tape, subject.cotangents)
    except (EvaluationError, RuntimeError):
        return Casts()
    return Casts(forward=frozenset(forward.down | forward.up), backward=frozenset(backward.down | backward.up))
