"""Torch's default device: where constructors make tensors that name no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from gradverify.core.model.problem import Problem


def default_device() -> torch.device:
    """Return the device of new tensors. Before torch 2.12, get_default_device raises after a default was reset."""
    return torch.empty(0).device


@contextmanager
def cpu_by_default(problem: Problem) -> Iterator[Problem]:
    """Make the CPU the default device, but for the problem's own forwards, which keep the one that was set."""
    device = default_device()
    if device.type == "cpu":
        yield problem
        return
    with torch.device("cpu"):
        yield _with_default(device, problem)


def _with_default(device: torch.device, problem: Problem) -> Problem:
    def under(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*tensors: Any) -> Any:
            with device:
                return function(*tensors)

        return called

    return replace(
        problem,
        function=under(problem.function),
        finer=None if problem.finer is None else under(problem.finer),
        reference=None if problem.reference is None else _with_default(device, problem.reference),
    )
