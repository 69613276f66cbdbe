"""Inputs inferred by trying: of all shapes that run, those that a function is meant for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradverify.author.inferring.infer import infer
from gradverify.author.inferring.model import Question
from gradverify.case import Target
from tests.author.inferring import inferred, shapes

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


class Gate(Function):
    "Gradients of b1, b2 and b3 have one dimension, while forward takes any that are broadcast."

    @staticmethod
    def forward(ctx, x, w1, b1, w2, b2, w3, b3):
        one, two = x @ w1.mT + b1, x @ w2.mT + b2
        ctx.save_for_backward(x, w1, w2, w3, one, two)
        return (one * two) @ w3.mT + b3

    @staticmethod
    def backward(ctx, g):
        x, w1, w2, w3, one, two = ctx.saved_tensors
        of_product = g @ w3
        of_one, of_two = of_product * two, of_product * one
        of_w1, of_w2, of_w3 = of_one.mT @ x, of_two.mT @ x, g.mT @ (one * two)
        return of_one @ w1 + of_two @ w2, of_w1, of_one.sum(0), of_w2, of_two.sum(0), of_w3, g.sum(0)


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


class Depthwise(Function):
    "For x (batch, channels, length) and w (channels, width). Square matrices fit too, by broadcasting."

    @staticmethod
    def forward(ctx, x, w, bias, padding=1):
        ctx.save_for_backward(x, w)
        ctx.padding = padding
        padded = functional.pad(x, (padding, padding))
        return (padded.unfold(-1, w.shape[-1], 1) * w[None, :, None]).sum(-1) + bias[None, :, None]

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        padding, width, length = ctx.padding, w.shape[-1], g.shape[-1]
        padded = functional.pad(x, (padding, padding))
        of_padded = g.new_zeros(*x.shape[:2], x.shape[-1] + 2 * padding)
        for i in range(width):
            of_padded[..., i : i + length] += g * w[None, :, None, i]
        of_w = torch.stack([(g * padded[..., i : i + length]).sum((0, 2)) for i in range(width)], -1)
        return of_padded[..., padding : padding + x.shape[-1]], of_w, g.sum((0, 2)), None


class Instance(Function):
    "For x (batch, channels, length); without training, an x of one dimension runs too, by broadcasting."

    @staticmethod
    def forward(ctx, x, gamma, beta, running_mean, running_var, training=True, momentum=0.1, eps=1e-5):
        if training:
            mean, var = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True)
            running_mean.lerp_(mean.mean(0)[:, 0], momentum)
            running_var.lerp_(var.mean(0)[:, 0], momentum)
        else:
            mean, var = running_mean[None, :, None], running_var[None, :, None]
        ctx.training, scale = training, (var + eps).rsqrt()
        whitened = (x - mean) * scale
        ctx.save_for_backward(whitened, scale, gamma)
        return whitened * gamma[None, :, None] + beta[None, :, None]

    @staticmethod
    def backward(ctx, g):
        whitened, scale, gamma = ctx.saved_tensors
        d = g * gamma[None, :, None]
        if ctx.training:
            d = d - d.mean(-1, keepdim=True) - whitened * (d * whitened).mean(-1, keepdim=True)
        return d * scale, (g * whitened).sum((0, 2)), g.sum((0, 2)), None, None, None, None, None


class Channels(Function):
    "Right for x (batch, channels, length) and channels of a number that no inputs try."

    @staticmethod
    def forward(ctx, x, weight):
        if x.dim() > 1 and x.shape[1] != 11:
            raise ValueError("x has 11 channels")
        ctx.save_for_backward(x, weight)
        return x * weight[None, :, None]

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g * weight[None, :, None], (g * x).sum((0, 2))


class Switch(Function):
    "Without `wide`, an x of two dimensions runs, which is tried first."

    @staticmethod
    def forward(ctx, x, wide=True):
        if x.dim() != (3 if wide else 2):
            raise ValueError("another number of dimensions")
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g, None


class Never(Switch):
    "The default accepts no inputs."

    @staticmethod
    def forward(ctx, x, wide=True):
        if wide:
            raise ValueError("not yet")
        return 2 * x


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


def test_every_gradient_has_the_shape_of_its_input(module: Path) -> None:
    """Gated runs with a second input of fewer dimensions too, and leaves a sum to autograd there."""
    assert shapes(inferred(module, "Gated")) == [[3, 4], [3, 4]]


def test_a_dimension_that_is_cut_into_parts_is_a_multiple(module: Path) -> None:
    found = inferred(module, "Cell")
    assert found.inputs == {"gates": {"shape": ["n", "3 * d"]}, "state": {"shape": ["n", "d"]}}
    assert found.dims == {"n": 3, "d": 4}


def test_a_sum_that_is_always_left_to_autograd_is_inferred(module: Path) -> None:
    assert shapes(inferred(module, "Scaled")) == [[3, 4], [4]]


def test_a_function_that_autograd_refuses_is_inferred(module: Path) -> None:
    x, matrix = shapes(inferred(module, "Exchanged"))
    assert x[-1] == matrix[-1]


def test_a_gradient_that_autograd_refuses_tells_the_shape_of_its_input(module: Path) -> None:
    x, w1, b1, w2, b2, w3, b3 = shapes(inferred(module, "Gate"))
    assert [b1, b2, b3] == [w1[:1], w2[:1], w3[:1]]
    assert len(x) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Depthwise", [[2, 3, 4], [3, 4], [3]]),
        ("Instance", [[2, 3, 4], [3], [3], [3], [3]]),
    ],
)
def test_shapes_that_need_no_broadcasting_are_preferred_to_smaller_ones(
    module: Path, name: str, expected: list[list[int]]
) -> None:
    assert shapes(inferred(module, name))[: len(expected)] == expected


def test_shapes_that_fit_by_broadcasting_alone_are_a_draft(module: Path) -> None:
    found = inferred(module, "Channels")
    said = (
        "could not infer x, weight: where backward ran, forward broadcast the inputs to more dimensions and gradients"
    )
    assert found.reason.startswith(said)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Instance", {"training": True, "momentum": 0.1, "eps": 1e-5}),
        ("Depthwise", {"padding": 1}),
        ("Switch", {"wide": True}),
        ("Never", {"wide": False}),
    ],
)
def test_defaults_are_kept_where_forward_accepts_any_inputs_with_them(
    module: Path, name: str, values: dict[str, object]
) -> None:
    inputs = inferred(module, name).inputs
    assert {key: inputs[key] for key in values} == values
    assert "shape" in inputs["x"]


def test_a_tensor_that_forward_writes_to_and_has_no_gradient_is_not_differentiated(module: Path) -> None:
    inputs = inferred(module, "Instance").inputs
    tensors = {name: value.get("requires_grad", True) for name, value in inputs.items() if isinstance(value, dict)}
    assert tensors == {"x": True, "gamma": True, "beta": True, "running_mean": False, "running_var": False}


CONFIGURED = """
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from torch.autograd import Function


class Reduction(Enum):
    MEAN = "mean"
    SUM = "sum"


@dataclass
class Options:
    factor: float = 2.0


@dataclass
class Needy:
    factor: float


class Reduced(Function):
    @staticmethod
    def forward(ctx, x, reduction: Reduction, options: Options):
        ctx.shape, ctx.scale = x.shape, options.factor / (len(x) if reduction is Reduction.MEAN else 1)
        return x.sum(0) * ctx.scale

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.shape) * ctx.scale, None, None


class Other(Function):
    @staticmethod
    def forward(ctx, x, needy: Needy):
        return x * needy.factor
"""


def test_objects_are_made_from_an_annotated_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configured_xyz.py").write_text(CONFIGURED, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found, other = (
        infer(Question(target=Target(module="configured_xyz", name=name, written=name), draw_key=name))
        for name in ("Reduced", "Other")
    )
    assert not found.reason
    assert found.inputs["reduction"] == {"factory": "configured_xyz:Reduction", "args": {"value": "mean"}}
    assert found.inputs["options"] == {"factory": "configured_xyz:Options"}
    assert other.reason.startswith("could not make needy")


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
        ("sys.exit(5)", "SystemExit: 5 (raising.py:10), in N tries; say the inputs"),
        ("sys.exit('not on this machine')", "SystemExit: not on this machine, in N tries; say the inputs"),
        ("{}['a key']", "KeyError: 'a key' (raising.py:10), in N tries; say the inputs"),
        ("raise ValueError('boom')", "ValueError: boom (raising.py:10), in N tries; say the inputs"),
        ("raise ValueError", "ValueError (raising.py:10), in N tries; say the inputs"),
        ("assert len(x) > 99", "AssertionError: `assert len(x) > 99`, in N tries; say the inputs"),
        ("raise ValueError('too small')", "'too small' (raising.py:10), in N tries; say the inputs"),
        ("raise ValueError('\\x1b[1mx is\\x1b[0m bad')", "'x is bad', in N tries; say the inputs"),
        ("raise ValueError('x is bad')", "'x is bad', in N tries; say the inputs"),
        ("import absent.part", "'No module named 'absent'', in N tries; `absent` must be installed"),
    ],
)
def test_the_reason_of_a_draft_says_what_was_raised(tmp_path: Path, statement: str, said: str) -> None:
    file = tmp_path / "raising.py"
    file.write_text(RAISING.format(statement=statement), encoding="utf-8")
    reason = inferred(file, "Raising").reason
    assert re.sub("in [0-9,]+ (try|tries)", "in N tries", reason) == f"could not infer x: forward raised {said}"


@pytest.mark.slow
def test_the_reason_of_a_draft_is_the_error_of_the_try_that_came_furthest(tmp_path: Path) -> None:
    file = tmp_path / "raising.py"
    statement = "assert x.dim() == 4, 'four dimensions'; y = 2 * x\n        assert len(y) > 99, 'a large batch'"
    file.write_text(RAISING.format(statement=statement), encoding="utf-8")
    assert "forward raised 'a large batch'" in inferred(file, "Raising").reason


SORTED = """
import torch


class Piecewise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, boundaries):
        if boundaries.dim() != 1 or bool((boundaries.float().diff() < 0).any()):
            raise ValueError("boundaries must be sorted")
        return x * torch.bucketize(x, boundaries.to(x.dtype)).clamp(min=1)

    @staticmethod
    def backward(ctx, g):
        return g, None
"""


def test_inputs_that_run_by_luck_of_the_draw_are_not_inferred(tmp_path: Path) -> None:
    file = tmp_path / "by_luck.py"
    file.write_text(SORTED, encoding="utf-8")
    boundaries = inferred(file, "Piecewise").inputs["boundaries"]
    assert "values" in boundaries or boundaries["shape"] == [1]  # longer ones are in order at some draws only
