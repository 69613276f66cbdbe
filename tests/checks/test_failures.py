"""What is said of user code that raised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.registry import run_check
from tests.core.support import ALONE, claimed, double, problem_of, with_backward


def said(error: Exception) -> str:
    def forward(x: Tensor) -> Tensor:
        raise error

    return run_check("gradcheck", problem_of(forward, double([1.0])), Settings()).message


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "out of memory in forward: MemoryError"),
        (MemoryError("16 GiB"), "out of memory in forward: 16 GiB"),
        (ValueError(), "forward raised ValueError ("),
        (ValueError(" \n"), "forward raised ValueError ("),
        (ValueError("\nodd\nlines"), "forward raised ValueError: odd ("),
        (KeyError("x"), "forward raised KeyError: 'x' ("),
    ],
)
def test_an_exception_is_named_also_where_it_says_nothing(error: Exception, text: str) -> None:
    assert said(error).startswith(text)


def test_so_it_is_in_backward() -> None:
    def backward(x: Tensor) -> Tensor:
        raise AssertionError

    message = run_check("gradcheck", problem_of(claimed(torch.sin, backward), double([1.0])), Settings()).message
    assert message.startswith("backward raised AssertionError (")


def test_of_a_long_text_only_so_much_is_told_as_one_reads() -> None:
    assert said(ValueError("x" * 5000)).startswith(f"forward raised ValueError: {'x' * 500} … (")


def test_a_kernel_without_a_gpu_is_answered_with_how_to_interpret_it() -> None:
    message = said(RuntimeError("0 active drivers ([]). There should only be one."))
    assert message.endswith("TRITON_INTERPRET=1 in Python, runs Triton kernels on the CPU")


def test_the_place_is_in_the_users_own_code_even_in_a_folder_called_torch(tmp_path: Path) -> None:
    file = tmp_path / "torch" / "kernels.py"
    names: dict[str, Any] = {}
    code = "import torch\ndef forward(x):\n    return torch.cat([x, torch.zeros(2, 2)])\n"
    exec(compile(code, str(file), "exec"), names)
    message = run_check("gradcheck", problem_of(names["forward"], double([1.0])), Settings()).message
    assert message.endswith(f"({file}:3 in forward)")


def ended(*_: Any) -> Any:
    pytest.fail("Timeout > 1.0 s")  # as a test runner ends a test that takes too long


@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck", "contract"])
def test_what_ends_a_test_is_no_error_of_the_user(check: str) -> None:
    for function in (ended, with_backward(torch.sin, ended)):
        with pytest.raises(pytest.fail.Exception):
            run_check(check, problem_of(function, double([0.3, 0.7])), ALONE)


def left(*_: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(("function", "code"), [(left, "GV902"), (with_backward(torch.sin, left), "GV903")])
def test_a_function_that_ends_the_program_is_an_error(function: Callable[..., Any], code: str) -> None:
    found = run_check("gradcheck", problem_of(function, double([0.3, 0.7])), ALONE)
    assert [finding.code for finding in found.findings] == [code]
