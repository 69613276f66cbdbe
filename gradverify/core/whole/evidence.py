"""What a wrong block of a Jacobian leaves for a diagnosis to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward
from gradverify.core.model.coordinates import Block
from gradverify.core.whole.sums import Sums


class Site(Protocol):
    """Where a wrong block stands, however much of it can be looked at."""

    @property
    def of(self) -> Block:
        """The output."""

    @property
    def wrt(self) -> Block:
        """The input."""

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""

    @property
    def backward(self) -> Backward:
        """The problem, and its vjp."""

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Both Jacobians over all outputs and inputs, for causes that show only when blocks are compared."""

    outputs: tuple[Block, ...]
    inputs: tuple[Block, ...]
    claimed: Tensor  # (m, n)
    numeric: Tensor  # (m, n)
    bar: Tensor  # (m, n)
    wrong: Tensor  # (m, n) bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One block d of / d wrt with mismatches, all of its entries, and backward to ask further."""

    of: Block
    wrt: Block
    claimed: Tensor  # (outputs, inputs) what backward says
    numeric: Tensor  # (outputs, inputs) what differences say; not finite where nothing could be measured
    bar: Tensor  # (outputs, inputs) error bars of `numeric`
    wrong: Tensor  # (outputs, inputs) bool: entries that are mismatches
    backward: Backward  # the problem with its primals, and its vjp
    whole: Whole  # what the block is a part of

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""
        return self.whole.inputs

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""
        return self.whole.outputs

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.claimed.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A pattern that was measured to explain the error."""

    cause: str  # constant-factor, missing-mask …
    explanation: str  # one sentence, with the region or the factor
    share: float  # part of the squared error that it explains, 0 … 1


Diagnose = Callable[[Evidence | Sums], Diagnosis | None]  # None where no known pattern explains the error


def undiagnosed(evidence: Evidence | Sums) -> None:
    """Name no cause."""
    del evidence
