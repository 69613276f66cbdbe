"""What a diagnosis is given: the entries of a wrong block or, if they are too many, the problem to sample them from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.comparison import Entries
from gradverify.core.decide.context import MeasuredProblem
from gradverify.core.decide.verdict import Code
from gradverify.core.jacobians import Investigation
from gradverify.core.model.coordinates import Block


@dataclass(frozen=True, slots=True, kw_only=True)
class JacobianPair:
    """Both Jacobians over all outputs and inputs, for causes that show only if blocks are compared."""

    backward: Backward  # the problem with its primals, and its vjp
    outputs: tuple[Block, ...]
    inputs: tuple[Block, ...]
    claimed: Tensor  # (m, n)
    numeric: Tensor  # (m, n)
    bar: Tensor  # (m, n)
    code: Tensor  # (m, n) see Code
    maybe_kinked: Tensor  # (m, n) bool: False where differences show that the function has no kink
    eps: float  # of the coarsest dtype that backward computes in

    @property
    def wrong(self) -> Tensor:
        """Mask of the mismatches, (m, n)."""
        return self.code == Code.MISMATCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One block d of / d wrt with mismatches: all of its entries, and backward for further vjps."""

    of: Block
    wrt: Block
    claimed: Tensor  # (outputs, inputs) the entries from backward
    numeric: Tensor  # (outputs, inputs) the entries from finite differences; not finite if they could not be measured
    bar: Tensor  # (outputs, inputs) error bars of `numeric`
    wrong: Tensor  # (outputs, inputs) True where an entry is a mismatch
    jacobians: JacobianPair  # both Jacobians, which the block is a part of

    @property
    def backward(self) -> Backward:
        """The problem with its primals, and its vjp."""
        return self.jacobians.backward

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""
        return self.jacobians.inputs

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""
        return self.jacobians.outputs

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.claimed.device


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBlock:
    """One block d of / d wrt with mismatches, too large to hold, and the problem that it belongs to."""

    of: Block
    wrt: Block
    measured: MeasuredProblem
    wrong_entries: Entries  # the wrong entries that are known
    wrong_places_complete: bool  # True if all inputs and outputs with wrong entries are among those of `wrong_entries`
    settings: Settings  # of the check, for problems cut out of this one

    @property
    def inputs(self) -> tuple[Block, ...]:
        """All inputs."""
        return self.measured.sampled.inputs

    @property
    def outputs(self) -> tuple[Block, ...]:
        """All outputs."""
        return self.measured.sampled.outputs

    @property
    def backward(self) -> Backward:
        """The problem and its vjp."""
        return self.measured.backward

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.measured.sampled.value.device


WrongBlock = Evidence | LargeBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A pattern that was measured to explain the error."""

    cause: str  # constant-factor, missing-mask …
    explanation: str  # one sentence, with the region or the factor
    share: float  # the part of the squared error that it explains, from 0 to 1


Diagnose = Callable[[WrongBlock], Diagnosis | None]  # None if no known pattern explains the error


def undiagnosed(block: WrongBlock) -> None:
    """Return None: the `Diagnose` that finds no cause."""
    del block


def jacobian_pair(found: Investigation) -> JacobianPair | None:
    """Return all entries of both Jacobians, None if they were too many to keep."""
    kept = found.comparison.judged
    if kept is None:
        return None
    claimed, numeric, bar = found.sampled.value.new_zeros(3, len(found.sampled.value), len(found.sampled.point))
    code, maybe_kinked = torch.zeros_like(claimed, dtype=torch.int8), torch.zeros_like(claimed, dtype=torch.bool)
    groups, outputs = (kept.column_of >= 0).nonzero(as_tuple=True)
    entries, place = (groups, outputs), (outputs, kept.column_of[groups, outputs])
    claimed[place] = kept.claimed[entries]
    numeric[place], bar[place] = kept.judged.numeric[entries], kept.judged.bar[entries]
    code[place], maybe_kinked[place] = kept.judged.code[entries], kept.judged.kinked[entries]
    sampled = found.sampled
    return JacobianPair(
        backward=found.backward,
        outputs=sampled.outputs,
        inputs=sampled.inputs,
        claimed=claimed,
        numeric=numeric,
        bar=bar,
        code=code,
        maybe_kinked=maybe_kinked,
        eps=sampled.gradient_eps,
    )


def evidence_of(jacobians: JacobianPair, of: Block, wrt: Block) -> Evidence:
    """Return the entries of one block of both Jacobians, or of several blocks as one."""
    place = (of.coordinates, wrt.coordinates)
    return Evidence(
        of=of,
        wrt=wrt,
        claimed=jacobians.claimed[place],
        numeric=jacobians.numeric[place],
        bar=jacobians.bar[place],
        wrong=jacobians.wrong[place],
        jacobians=jacobians,
    )
