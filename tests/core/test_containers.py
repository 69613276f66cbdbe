"""Tensors inside dataclasses, dicts, lists and tuples are inputs and outputs like others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck, with_scaled_gradient


@dataclass(frozen=True)
class Both:
    first: Tensor
    second: Tensor | None = None


class Pair(NamedTuple):
    first: Tensor
    second: Tensor | None = None


def square(factor: float) -> Callable[[Tensor], Tensor]:
    """Return a square whose gradient is `factor` times the right one."""
    return with_scaled_gradient(torch.square, factor)


VALUES = [0.5, -1.0, 2.0]


@dataclass(eq=False)
class Node:
    value: Tensor | None = None
    above: Node | None = None


@dataclass
class Keyed(dict[str, Tensor]):
    size: int = 3


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.5, Verdict.FAIL)])
@pytest.mark.parametrize(
    ("inside", "name"),
    [
        (Both, "output[1].first"),
        (Pair, "output[1][0]"),
        (lambda y: {"first": y}, "output[1].first"),
        (lambda y: [Both(y)], "output[1][0].first"),
    ],
    ids=["dataclass", "namedtuple", "dict", "list of dataclasses"],
)
def test_output_inside_a_container_is_judged(inside: Any, name: str, factor: float, verdict: Verdict) -> None:
    result = gradcheck(lambda x: (2 * x, inside(square(factor)(x))), double(VALUES))
    assert result.verdict is verdict
    assert [finding.of for finding in result.findings] == [name] * (verdict is Verdict.FAIL)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.5, Verdict.FAIL)])
@pytest.mark.parametrize(
    ("inside", "taken", "name"),
    [
        (Both, lambda given: given.first, "y.first"),
        (Pair, lambda given: given.first, "y[0]"),
        (lambda y: {"first": y}, lambda given: given["first"], "y.first"),
        (lambda y: [Both(y)], lambda given: given[0].first, "y[0].first"),
    ],
    ids=["dataclass", "namedtuple", "dict", "list of dataclasses"],
)
def test_input_inside_a_container_is_judged(
    inside: Any, taken: Any, name: str, factor: float, verdict: Verdict
) -> None:
    result = gradcheck(lambda x, y: 2 * x + square(factor)(taken(y)), double(VALUES), inside(double(VALUES)))
    assert result.verdict is verdict
    assert [finding.wrt for finding in result.findings] == [name] * (verdict is Verdict.FAIL)


def test_a_dataclass_may_lead_back_to_itself() -> None:
    node = Node(value=double(VALUES))
    node.above = node
    result = gradcheck(lambda x, y: x * square(1.5)(y.value), double(VALUES), node)
    assert result.verdict is Verdict.FAIL
    assert "y.value" in {finding.wrt for finding in result.findings}


@pytest.mark.parametrize("config", [Node(), Keyed()], ids=["dataclass", "dict of its own class"])
def test_an_object_without_tensors_is_passed_as_it_is(config: Any) -> None:
    factors = {id(config): 2.0}
    assert gradcheck(lambda x, y: factors[id(y)] * x, double(VALUES), config).verdict is Verdict.PASS


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.5, Verdict.FAIL)])
def test_a_dict_that_is_a_dataclass_is_a_dict(factor: float, verdict: Verdict) -> None:
    def keyed(tensor: Tensor) -> Keyed:
        found = Keyed()
        found["y"] = tensor
        return found

    assert gradcheck(lambda x: keyed(square(factor)(x)), double(VALUES)).verdict is verdict
    given = keyed(double(VALUES))
    assert gradcheck(lambda x, y: x + square(factor)(y["y"]), double(VALUES), given).verdict is verdict
