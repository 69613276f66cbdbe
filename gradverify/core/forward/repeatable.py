"""A forward made repeatable: what random numbers it draws are the same at every call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradverify.core.forward.noise import repeats
from gradverify.core.forward.sampler import Mode, Sampler, sampler
from gradverify.core.model.generators import forward_seed, seed_everywhere, untouched
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """A problem whose forward gives the same outputs again, with its recorded graph and its sampler."""

    problem: Problem
    tape: Tape
    sampled: Sampler


def steady(problem: Problem, tape: Tape, seed: int) -> Repeatable | None:
    """Return the problem made repeatable, by seeding before every call if need be, or None where that does not help.

    A forward that draws random numbers is seeded, also if by chance it gave the same outputs twice. Raises
    EvaluationError when user code does.
    """
    seed_everywhere(seed)
    found = Repeatable(problem=problem, tape=tape, sampled=sampler(problem, tape))
    repeated = _repeats(found.sampled)
    if problem.seed is None and (not repeated or not untouched(seed)):
        seeded = replace(problem, seed=forward_seed(seed))
        tape = record(seeded)
        found = Repeatable(problem=seeded, tape=tape, sampled=sampler(seeded, tape))
        repeated = _repeats(found.sampled)
    return found if repeated else None


def _repeats(sampled: Sampler) -> bool:
    # Where the forward runs alike with and without a graph, its sampler has already seen it repeat.
    return sampled.mode is Mode.WITHOUT_GRAPH or repeats(sampled)
