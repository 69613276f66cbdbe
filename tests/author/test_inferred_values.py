"""Values of inferred inputs: in the domain of a function that refuses others, and of the kind that it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.author.inferring import inferred, shapes

MODULE = """
import torch
from torch.autograd import Function
from torch.nn import functional


class Depth(Function):
    "Refuses depths that are not positive."

    @staticmethod
    def forward(ctx, x, z):
        if (z <= 0).any():
            raise ValueError("behind the camera")
        ctx.save_for_backward(x, z)
        return x / z

    @staticmethod
    def backward(ctx, g):
        x, z = ctx.saved_tensors
        return g / z, -g * x / z**2


class Solve(Function):
    "Cholesky raises for a matrix that is not positive definite."

    @staticmethod
    def forward(ctx, a, rows):
        factor = torch.linalg.cholesky(a)
        ctx.save_for_backward(factor, rows)
        return rows @ torch.cholesky_inverse(factor)

    @staticmethod
    def backward(ctx, g):
        factor, rows = ctx.saved_tensors
        inverse = torch.cholesky_inverse(factor)
        return -inverse.mT @ rows.mT @ g @ inverse.mT, g @ inverse.mT


class Reflect(Function):
    "Leaves out the gradient of what is reflected."

    @staticmethod
    def forward(ctx, x, pad):
        ctx.pad, ctx.n = tuple(pad), x.shape[-1]
        return functional.pad(x, ctx.pad, mode="reflect")

    @staticmethod
    def backward(ctx, g):
        left, _ = ctx.pad
        return g[..., left : left + ctx.n], None


class Solved(Function):
    "torch says that `unitriangular` must be a bool."

    @staticmethod
    def forward(ctx, a, right, unitriangular):
        ctx.unitriangular = unitriangular
        solution = torch.linalg.solve_triangular(a.tril(), right, upper=False, unitriangular=unitriangular)
        ctx.save_for_backward(a, solution)
        return solution

    @staticmethod
    def backward(ctx, g):
        a, solution = ctx.saved_tensors
        of_right = torch.linalg.solve_triangular(a.tril().mT, g, upper=True, unitriangular=ctx.unitriangular)
        of_a = (-of_right @ solution.mT).tril(-1 if ctx.unitriangular else 0)
        return of_a, of_right, None


class Ragged(Function):
    "Sums of the rows x[starts[i]:starts[i + 1]]."

    @staticmethod
    def forward(ctx, x, starts):
        lengths = starts[1:] - starts[:-1]
        if starts[0] != 0 or starts[-1] != len(x) or (lengths < 0).any():
            raise ValueError("starts")
        ctx.save_for_backward(lengths)
        segment = torch.arange(len(lengths)).repeat_interleave(lengths)
        return x.new_zeros(len(lengths), *x.shape[1:]).index_add(0, segment, x)

    @staticmethod
    def backward(ctx, g):
        (lengths,) = ctx.saved_tensors
        return g.repeat_interleave(lengths, 0), None


class Put(Function):
    "The rows that are replaced must differ; if all are, x does not matter."

    @staticmethod
    def forward(ctx, x, index, given):
        if len(index.unique()) < len(index):
            raise ValueError("the rows that are replaced must differ")
        ctx.save_for_backward(index)
        return x.index_put((index,), given)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        of_x = g.clone()
        of_x[index] = 0
        return of_x, None, g[index]
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("values") / "functions.py"
    place.write_text(MODULE, encoding="utf-8")
    return place


def test_values_are_in_the_domain_that_forward_accepts(module: Path) -> None:
    found = inferred(module, "Depth")
    assert shapes(found) == [[3, 4], [3, 4]]
    assert found.inputs["z"]["uniform"][0] > 0


def test_only_square_matrices_are_made_positive_definite(module: Path) -> None:
    found = inferred(module, "Solve")
    assert shapes(found) == [[4, 4], [3, 4]]
    assert found.inputs["a"]["constraint"] == "positive_definite"
    assert "constraint" not in found.inputs["rows"]


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("Reflect", "pad", [1, 1]),
        ("Solved", "unitriangular", False),
        ("Ragged", "starts", {"values": [0, 1, 3]}),
    ],
)
def test_an_argument_is_of_the_kind_that_forward_asks_for(module: Path, name: str, argument: str, value: Any) -> None:
    found = inferred(module, name)
    assert not found.reason
    given = found.inputs[argument]
    assert given.get("size", given) == value if isinstance(given, dict) else given == value


def test_matrices_are_tried_before_tensors_of_more_dimensions(module: Path) -> None:
    assert shapes(inferred(module, "Solved")) == [[4, 4], [4, 6]]


def test_an_index_leaves_rows_that_keep_their_gradient(module: Path) -> None:
    x, index, _ = shapes(inferred(module, "Put"))
    assert index[0] < x[0]
