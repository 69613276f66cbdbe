"""Median times of forward and backward. The functions take turns, so that a busy machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch

from gradverify.run.usage.sides import Side, new_leaves, ones_for, run_backward, run_forward

_ROUNDS = 101
_SECONDS = 1.0  # after which no further round starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one forward and backward."""

    forward: float
    backward: float


def times_of(sides: Sequence[Side]) -> list[Times]:
    """Return the medians of each function; raises what forward and backward raise."""
    rounds: list[list[Times]] = []
    end = time.perf_counter() + _SECONDS
    while not rounds or (len(rounds) < _ROUNDS and time.perf_counter() < end):
        rounds.append([_timed(side) for side in sides])
    return [
        Times(forward=median(each.forward for each in found), backward=median(each.backward for each in found))
        for found in zip(*rounds, strict=True)
    ]


def _timed(side: Side) -> Times:
    leaves = new_leaves(side)
    start = _now(side)
    tape = run_forward(side, leaves)
    middle = _now(side)
    cotangents = ones_for(tape)
    again = _now(side)
    run_backward(side, tape, cotangents)
    return Times(forward=middle - start, backward=_now(side) - again)


def _now(side: Side) -> float:
    """Return the time in seconds after all work of the device is done."""
    device = side.problem.primals[0].tensor.device
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
    return time.perf_counter()
