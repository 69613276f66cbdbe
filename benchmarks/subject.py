"""A specimen of the zoo prepared for planting faults: its problem and its right Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.backward.vjps import backward_of, jacobian
from gradverify.core.decide.context import unchanged
from gradverify.core.decide.verdict import Code
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.forward.sampler import Sampler
from gradverify.core.jacobians import investigate
from gradverify.core.model.coordinates import Block, blocks
from gradverify.core.model.problem import Problem, bind
from gradverify.core.model.tape import record
from gradverify.evidence import JacobianPair, jacobian_pair
from gradverify.nested import Named
from gradverify.result import CheckResult, Verdict
from tests.zoo.specimen import Specimen

ALL_ELEMENTS = 1_000_000
UNDEFINED = (Code.KINK, Code.JUMP, Code.UNDEFINED, Code.NAN_PROPAGATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A right function to plant a fault in."""

    name: str
    problem: Problem
    jacobian: Tensor  # (m, n), by autograd
    inputs: tuple[Block, ...]
    kept: tuple[str, ...]  # names of the judged outputs
    outputs: tuple[Block, ...]  # of the planted problem, which returns the judged outputs as a tuple
    point: Tensor  # (n,)
    defined: Tensor  # (m, n) bool: True where the derivative is unique


def settings(seed: int) -> Settings:
    """Return the settings of all runs: torch's check is timed separately, and every element is kept."""
    return Settings(seed=seed, torch_gradcheck=TorchGradcheck.NEVER, max_elements=ALL_ELEMENTS)


def result_of(check: str, problem: Problem, seed: int) -> CheckResult:
    """Return the check's result; an exception becomes an ERROR result, so that it does not end the benchmark."""
    try:
        return run_check(check, problem, settings(seed))
    except Exception as error:
        return CheckResult(check=check, verdict=Verdict.ERROR, message=f"crash: {type(error).__name__}: {error}")


def problem_of(specimen: Specimen, seed: int) -> Problem:
    """Return the specimen's problem at the point of this seed."""
    return bind(specimen.function, specimen.inputs(seed), names=specimen.names, name=specimen.name)


def subject_of(specimen: Specimen, seed: int) -> Subject | None:
    """Return the subject, or None if no fault can be planted.

    Ties are left out: several gradients are right there, and a fault may be one of them.
    """
    if specimen.tags & {"random", "tie"}:
        return None
    return prepared(specimen.name, problem_of(specimen, seed), seed)


def prepared(name: str, problem: Problem, seed: int) -> Subject | None:
    """Return the problem as a subject, or None if it has no output, or its Jacobian is empty or not finite."""
    tape = record(problem)
    if not tape.outputs:
        return None
    right = jacobian(backward_of(problem, tape, seed))
    if not right.numel() or not bool(torch.isfinite(right).all()):
        return None
    sampled, judged = judge_right(problem, seed)
    undefined = torch.isin(judged.code, torch.tensor(UNDEFINED, dtype=torch.int8))
    return Subject(
        name=name,
        problem=problem,
        jacobian=right,
        inputs=blocks(Named(name=primal.name, tensor=primal.tensor) for primal in problem.primals),
        kept=sampled.names,
        outputs=blocks(Named(name=f"output[{k}]", tensor=output.tensor) for k, output in enumerate(tape.outputs)),
        point=sampled.point,
        defined=~undefined,
    )


def judge_right(problem: Problem, seed: int) -> tuple[Sampler, JacobianPair]:
    """Return the sampled forward and all judged entries."""
    ready = made_repeatable(problem, record(problem), seed)
    assert ready is not None
    found = investigate(ready, settings(seed), unchanged)
    entries = jacobian_pair(found)
    assert entries is not None
    return found.sampled, entries
