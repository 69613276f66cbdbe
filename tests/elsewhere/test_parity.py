"""GV707: a function that is another one on the other device is found, and one that only rounds differently is not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.backend_registration as backends

import gradverify
from gradverify.result import Verdict

ROOT = Path(__file__).parent.parent.parent
DTYPES = ("float64", "float32", "float16", "bfloat16", "complex64")
LATE = 300  # seconds
pytestmark = pytest.mark.xdist_group("parity")  # one process sets up `found`
needs_device = pytest.mark.skipif(
    not hasattr(backends, "_setup_privateuseone_for_python_backend"),
    reason="this torch takes no device from Python",
)


@pytest.fixture(scope="module")
def found() -> Mapping[str, Any]:
    """Return what is said there; a device is registered for a whole process, so it has one of its own."""
    command = [sys.executable, "-m", "tests.elsewhere.parity"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LATE, check=False)
    assert run.returncode == 0, run.stderr[-2_000:]
    said: Mapping[str, Any] = json.loads(run.stdout)
    return said


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_is_wrong_on_the_device_only_is_found_and_named(dtype: str, found: Mapping[str, Any]) -> None:
    said = found[f"last entry lost, {dtype}"]
    assert said["verdict"] == "fail"
    assert set(said["codes"]) == {"GV707"}
    assert {(name.partition(".")[0], *place) for name, place in said["wrong"]} == {("x", 4, 36)}
    assert said["findings"][0].startswith("on elsewhere:0, 1 of 185 entries of the gradient by x")
    assert " is 0, on the CPU " in said["findings"][0]


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", ["right", "one bit off"])
def test_what_rounding_explains_passes(function: str, dtype: str, found: Mapping[str, Any]) -> None:
    assert (said := found[f"{function}, {dtype}"])["verdict"] == "pass", said
    assert " entries agree with those on the CPU for 5 cotangents" in said["message"]


@needs_device
@pytest.mark.slow
def test_kernels_that_round_elsewhere_pass(found: Mapping[str, Any]) -> None:
    said = {name: one for name, one in found.items() if name.startswith("rounded: ")}
    assert len(said) == 27
    assert {name: one for name, one in said.items() if one["verdict"] != "pass"} == {}


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gradient_that_is_missing_on_the_device_is_found(dtype: str, found: Mapping[str, Any]) -> None:
    text = "on elsewhere:0, backward returns no gradient for x; on the CPU, it is not zero in "
    assert found[f"none, {dtype}"]["findings"][0].startswith(text)


@needs_device
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("another shape", "fail", "output has shape [1, 37] on elsewhere:0, on the CPU [5, 37]"),
        ("another dtype", "fail", "output is float64 on elsewhere:0, on the CPU float32"),
        ("not a number there", "fail", "1 of 407 entries differs from that on the CPU"),
        ("not a number here", "inconclusive", "on elsewhere:0, 105 of 185 entries of output cannot be judged"),
        ("random", "skip", "the forward draws random numbers, which are not the same on another device"),
        ("the device only", "skip", "forward does not run on the CPU: RuntimeError: this kernel runs on a GPU"),
        ("other inputs", "skip", "the inputs are other numbers on the CPU, so there is nothing to compare"),
        ("a module", "pass", ""),
        ("an index", "pass", ""),
        ("a keyword", "pass", ""),
        ("a spec", "pass", ""),
    ],
)
def test_forms_of_functions(name: str, verdict: str, message: str, found: Mapping[str, Any]) -> None:
    assert found[name]["verdict"] == verdict
    assert found[name]["message"].startswith(message)


@pytest.mark.slow
def test_a_case_on_the_cpu_is_skipped() -> None:
    result = gradverify.verify(torch.sin, (torch.ones(3, requires_grad=True),), checks=("parity",))
    assert (result.verdict, result.checks[0].message) == (
        Verdict.SKIP,
        "the CPU is what other devices are compared with: add one to `devices`, such as cuda",
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_torch_is_the_same_on_a_gpu_and_a_function_that_is_wrong_there_is_found(dtype: torch.dtype) -> None:
    x = torch.randn(33, 129, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.to(dtype).cuda().requires_grad_()
    assert gradverify.verify(lambda x: x.softmax(-1), (x,), checks=("parity",)).verdict is Verdict.PASS
    wrong = gradverify.verify(lambda x: (1.1 * x if x.is_cuda else x).softmax(-1), (x,), checks=("parity",))
    assert wrong.verdict is Verdict.FAIL
    assert {finding.code for finding in wrong.checks[0].findings} == {"GV707"}
