"""Which dtypes a float64 computation goes through, by watching every operation of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.checks.contract.subject import Subject, answer_of, graph
from gradverify.errors import EvaluationError

_DOUBLE = {torch.float64, torch.complex128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Casts:
    """Narrower floating dtypes that values were cast to or came from."""

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
    """Notes casts between float64 and narrower floating dtypes: down where digits are lost, and up."""

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
        if source.dtype in _DOUBLE and _is_narrow(result.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.narrow.add(result.dtype)
        elif result.dtype in _DOUBLE and _is_narrow(source.dtype) and source.numel() > 1:
            self.narrow.add(source.dtype)


def _is_narrow(dtype: torch.dtype) -> bool:
    return (dtype.is_floating_point or dtype.is_complex) and dtype not in _DOUBLE
