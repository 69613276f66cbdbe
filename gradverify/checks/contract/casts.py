"""Which dtypes a computation goes through, by watching every operation of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.checks.contract.subject import Subject, answer_of, graph
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
    forward, backward = _Watch(), _Watch()
    try:
        with forward:
            tape = graph(subject)
        with backward:
            answer_of(subject, tape, subject.cotangents)
    except (EvaluationError, RuntimeError):
        return Casts()
    return Casts(forward=frozenset(forward.narrow), backward=frozenset(backward.narrow))


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes casts between floating dtypes by the narrower of the two: down where digits are lost, and up."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.narrow: set[torch.dtype] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Answer for torch, which would import its compiler for two seconds to see that there is nothing to skip."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        source = args[0] if args else None
        if isinstance(source, Tensor) and isinstance(result, Tensor) and source.shape == result.shape:
            self._note(source, result)
        return result

    def _note(self, source: Tensor, result: Tensor) -> None:
        if _is_narrower(result.dtype, source.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.narrow.add(result.dtype)
        elif _is_narrower(source.dtype, result.dtype) and source.numel() > 1:
            self.narrow.add(source.dtype)


def _is_narrower(one: torch.dtype, other: torch.dtype) -> bool:
    return _is_rounded(one) and _is_rounded(other) and torch.finfo(one).eps > torch.finfo(other).eps


def _is_rounded(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
