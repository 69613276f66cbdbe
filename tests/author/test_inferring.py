"""Inputs inferred by trying: of all shapes that run, those that a function is meant for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradverify.author.inferring.infer import infer
from gradverify.author.inferring.model import Inferred, Question
from gradverify.case import Target

MODULE = """
import torch
from torch.autograd import Function
from torch.nn import functional


class Gated(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a


class Cell(Function):
    @staticmethod
    def forward(ctx, gates, state):
        update, new, shift = gates.chunk(3, -1)
        ctx.save_for_backward(update, new, state)
        return update * (state - new) + shift

    @staticmethod
    def backward(ctx, g):
        update, new, state = ctx.saved_tensors
        return torch.cat((g * (state - new), -g * update, g), -1), g * update


class Scaled(Function):
    "Right for a weight of one dimension, which layer_norm asks for, but for the sum."

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return functional.layer_norm(x, x.shape[-1:], weight)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return functional.layer_norm(g * weight, x.shape[-1:]), g * functional.layer_norm(x, x.shape[-1:])


class Exchanged(Function):
    "Gradients in the wrong order: autograd refuses them."

    @staticmethod
    def forward(ctx, x, matrix):
        ctx.save_for_backward(x, matrix)
        return functional.linear(x, matrix)

    @staticmethod
    def backward(ctx, g):
        x, matrix = ctx.saved_tensors
        return g.mT @ x, g @ matrix


class Turned(Function):
    "For x (batch, rows, heads, 2 * d), and cos and sin (rows, d)."

    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return turned(x, cos, sin)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        return turned(g, cos, -sin), None, None


def turned(x, cos, sin):
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inferring") / "functions.py"
    place.write_text(MODULE, encoding="utf-8")
    return place


def inferred(module: Path, name: str) -> Inferred:
    return infer(Question(target=Target(file=str(module), name=name, written=f"{module}:{name}"), draw_key=name))


def shapes(found: Inferred) -> list[list[int]]:
    """Return the shapes of the inputs in numbers."""
    assert not found.reason
    return [[found.dims.get(size, size) for size in value["shape"]] for value in found.inputs.values()]


@pytest.mark.parametrize(("name", "expected"), [("Gated", [[3, 4], [3, 4]]), ("Cell", [[3], [1]])])
def test_every_gradient_has_the_shape_of_its_input(module: Path, name: str, expected: list[list[int]]) -> None:
    """Both run with a second input of fewer dimensions too, and leave a sum to autograd there."""
    assert shapes(inferred(module, name)) == expected


def test_a_sum_that_is_always_left_to_autograd_is_inferred(module: Path) -> None:
    assert shapes(inferred(module, "Scaled")) == [[3, 4], [4]]


def test_a_function_that_autograd_refuses_is_inferred(module: Path) -> None:
    x, matrix = shapes(inferred(module, "Exchanged"))
    assert x[-1] == matrix[-1]


@pytest.mark.slow
def test_shapes_that_are_broadcast_and_refused_are_not_inferred(module: Path) -> None:
    """With an x of one dimension, forward runs and backward does not: that says nothing of a right function.

    With one of two dimensions backward runs too, which a fast machine finds within the time for tries.
    """
    found = inferred(module, "Turned")
    assert "say the inputs" in found.reason or len(shapes(found)[0]) > 1


RAISING = """
import sys

import torch


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {statement}

    @staticmethod
    def backward(ctx, g):
        return g
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("sys.exit(5)", "SystemExit: 5, in N tries; say the inputs"),
        ("sys.exit('not on this machine')", "SystemExit: not on this machine, in N tries; say the inputs"),
        ("{}['a key']", "KeyError: 'a key', in N tries; say the inputs"),
        ("raise ValueError('boom')", "ValueError: boom, in N tries; say the inputs"),
        ("raise ValueError", "ValueError, in N tries; say the inputs"),
        ("raise ValueError('x is bad')", "'x is bad', in N tries; say the inputs"),
        ("import absent.part", "'No module named 'absent'', in N tries; `absent` must be installed"),
    ],
)
def test_the_reason_of_a_draft_says_what_was_raised(tmp_path: Path, statement: str, said: str) -> None:
    file = tmp_path / "raising.py"
    file.write_text(RAISING.format(statement=statement), encoding="utf-8")
    reason = inferred(file, "Raising").reason
    assert re.sub("in [0-9,]+ (try|tries)", "in N tries", reason) == f"could not infer x: forward raised {said}"
