"""Checks run one after the other on a problem."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.registry import CHECKS
from gradverify.run.checking import run_checks
from tests.core.support import double, problem_of


def _states() -> tuple[Any, ...]:
    numbers = np.random.get_state(legacy=False)["state"]
    return torch.get_rng_state().tolist(), random.getstate(), numbers["pos"], numbers["key"].tobytes()


def test_every_check_leaves_the_random_numbers_and_the_inputs_alone() -> None:
    def drawing(x: Tensor) -> Tensor:
        return x * torch.rand(x.shape, dtype=x.dtype) * random.random() * float(np.random.rand())

    for check in CHECKS:
        x = double([0.5, -1.0])
        before, states = x.clone(), _states()
        run_checks(problem_of(drawing, x), [check.name], {check.name: Settings()})
        assert _states() == states, check.name
        assert torch.equal(x, before)
        assert x.grad is None
