"""Make a forward repeatable: it uses the same random numbers at every call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradverify.core.forward.noise import repeats
from gradverify.core.forward.sampler import Mode, Sampler, sampler
from gradverify.core.model.generators import forward_seed, generators_unused, seed_everywhere
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """A problem whose forward gives the same outputs at every call, with its recorded graph and its sampler."""

    problem: Problem
    tape: Tape
    sampled: Sampler


def made_repeatable(problem: Problem, tape: Tape, seed: int) -> Repeatable | None:
    """Return the problem made repeatable, by seeding before every call if needed, None if that does not help.

    A forward that uses random numbers is seeded even if it happened to give the same outputs twice. Raises
    EvaluationError if user code raises.
    """
    seed_everywhere(seed)
    found = Repeatable(problem=problem, tape=tape, sampled=sampler(problem, tape))
    repeated = _repeats(found.sampled)
    if problem.seed is None and (not repeated or not generators_unused(seed)):
        seeded = replace(problem, seed=forward_seed(seed))
        tape = record(seeded)
        found = Repeatable(problem=seeded, tape=tape, sampled=sampler(seeded, tape))
        repeated = _repeats(found.sampled)
    return found if repeated else None


def _repeats(sampled: Sampler) -> bool:
    # WITHOUT_GRAPH means that a second call has already given the outputs of the recorded one.
    return sampled.mode is Mode.WITHOUT_GRAPH or repeats(sampled)
