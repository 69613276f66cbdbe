"""The right variants agree with autograd of plain code; the others are wrong where, and as far as, they should be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.slow_subject import Slow, Variant
from benchmarks.slow_subjects import SUBJECTS

pytestmark = pytest.mark.slow  # 30 Functions, a vjp per output each
EACH = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
RIGHT, CLEARLY_WRONG = 1e-10, 1e-3  # relative to the largest entry of the Jacobian
APPROXIMATE = (2e-7, 1e-3)


@EACH
def test_right_variant_agrees_with_plain_code(subject: Slow) -> None:
    output, jacobians = jacobian(subject, subject.functions[Variant.RIGHT].apply)
    expected_output, expected = right_jacobian(subject.name)
    torch.testing.assert_close(output, expected_output, rtol=1e-11, atol=1e-11)
    assert error(jacobians, expected) <= RIGHT


@EACH
def test_one_entry_of_the_gradient_is_zero_and_the_others_are_right(subject: Slow) -> None:
    output, jacobians = jacobian(subject, subject.functions[Variant.ONE_ENTRY].apply)
    _, expected = right_jacobian(subject.name)
    column = jacobians[subject.wrong_input].view(*output.shape, *jacobians[subject.wrong_input].shape[1:])
    place = (*subject.wrong_output, *subject.wrong_index)
    assert column[place] == 0
    every_output = (slice(None), *subject.wrong_index)
    right = expected[subject.wrong_input][every_output].clone()
    assert abs(right.view(output.shape)[subject.wrong_output]) == right.abs().max() > 0
    jacobians[subject.wrong_input][every_output] = right
    assert error(jacobians, expected) <= RIGHT


@EACH
def test_variant_wrong_throughout_is_clearly_wrong_in_several_entries(subject: Slow) -> None:
    _, jacobians = jacobian(subject, subject.functions[Variant.THROUGHOUT].apply)
    _, expected = right_jacobian(subject.name)
    assert error(jacobians, expected) >= CLEARLY_WRONG
    wrong = sum(int(((jacobians[name] - expected[name]).abs() > 1e-7 * size(expected)).sum()) for name in expected)
    assert wrong > 1


@EACH
def test_approximate_variant_is_off_by_little(subject: Slow) -> None:
    _, jacobians = jacobian(subject, subject.functions[Variant.APPROXIMATE].apply)
    _, expected = right_jacobian(subject.name)
    least, most = APPROXIMATE
    assert least <= error(jacobians, expected) <= most


@EACH
def test_variants_share_forward_unless_it_is_what_is_approximate(subject: Slow) -> None:
    right = subject.functions[Variant.RIGHT]
    for variant in (Variant.ONE_ENTRY, Variant.THROUGHOUT):
        assert subject.functions[variant].forward is right.forward
        assert subject.functions[variant].backward is not right.backward


def test_names_are_unique_and_the_inputs_are_small() -> None:
    assert len({subject.name for subject in SUBJECTS}) == len(SUBJECTS) >= 24
    for subject in SUBJECTS:
        inputs = subject.variants[Variant.RIGHT].inputs(0)
        assert 5 <= sum(tensor.numel() for tensor in inputs if tensor.requires_grad) <= 60


@cache
def right_jacobian(name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output and the derivatives of plain code, with which each variant is compared."""
    (subject,) = (each for each in SUBJECTS if each.name == name)
    return jacobian(subject, subject.plain)


def jacobian(subject: Slow, function: Callable[..., Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the output, and for each input the derivatives (outputs, *shape of the input)."""
    specimen = subject.variants[Variant.RIGHT]
    arguments = dict(zip(specimen.names, specimen.inputs(0), strict=True))
    inputs = {name: tensor for name, tensor in arguments.items() if tensor.requires_grad}
    output = function(*arguments.values())
    rows: list[tuple[Any, ...]] = [
        torch.autograd.grad(each, tuple(inputs.values()), retain_graph=True) for each in output.reshape(-1)
    ]
    return output.detach(), {
        name: torch.stack(column) for name, column in zip(inputs, zip(*rows, strict=True), strict=True)
    }


def size(jacobians: dict[str, Tensor]) -> float:
    return max(float(block.abs().max()) for block in jacobians.values())


def error(jacobians: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Return the largest difference over the largest entry."""
    found = max(float((jacobians[name] - expected[name]).abs().max()) for name in expected)
    return found / size(expected)
