"""Cases on a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gradverify.result import Verdict
from gradverify.run.task import Engine
from tests.run.making import case, outcome

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


@pytest.mark.gpu
@needs_gpu
def test_results_on_gpu_and_cpu_agree(engine: Engine) -> None:
    cases = [case("Square", id=f"spec/{n}/{device}", device=device) for n in range(3) for device in ("cpu", "cuda")]
    results = outcome(cases, engine).report.cases
    assert {result.verdict for result in results} == {Verdict.PASS}
    assert {check.entries for result in results for check in result.checks} == {9}


@pytest.mark.gpu
@needs_gpu
def test_a_failed_assertion_on_the_gpu_harms_no_other_case(engine: Engine) -> None:
    broken = case("out_of_range", "faults.py", device="cuda")
    cases = [broken, *(replace(case("Square", device="cuda"), id=f"spec/{n}/cuda") for n in range(3))]
    first, *others = outcome(cases, engine).report.cases
    assert first.verdict is Verdict.ERROR
    assert {result.verdict for result in others} == {Verdict.PASS}
