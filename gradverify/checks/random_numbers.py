"""Whether user code draws random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.model.generators import generators_unused, seed_everywhere
from gradverify.core.model.problem import Problem, gpus_of


def seeded_states(problem: Problem, seed: int) -> list[Tensor]:
    """Seed all generators and return the states of those on the problem's GPUs."""
    seed_everywhere(seed)
    return [torch.cuda.get_rng_state(gpu) for gpu in gpus_of(problem)]


def are_used(problem: Problem, seed: int, before: Sequence[Tensor]) -> bool:
    """Return True if a generator was used since `seeded_states` returned `before`."""
    states = [torch.cuda.get_rng_state(gpu) for gpu in gpus_of(problem)]
    return not generators_unused(seed) or not all(map(torch.equal, before, states))
