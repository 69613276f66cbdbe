"""The Functions that ship in specs/: each says what is known to be true of it, and the specs say so too."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from gradverify.case import Case, TorchGradcheck
from gradverify.result import CaseResult, CheckResult, ElementVerdict, Verdict
from gradverify.run.run_case import run_case
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

SPECS = Path(__file__).parent.parent.parent / "specs"
PASS, FAIL, SKIP, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.SKIP, Verdict.INCONCLUSIVE
TRUTH = {
    "custom_exp": (FAIL, PASS),
    "conditional_op": (PASS, PASS),
    "smooth_round": (FAIL, PASS),
    "custom_relu": (FAIL, PASS),
    "custom_squared_loss": (FAIL, OPEN),
    "memory_efficient_sigmoid": (PASS, PASS),
    "my_exp": (PASS, PASS),
    "my_custom_function": (PASS, PASS),
    "my_complex_function": (FAIL, SKIP),
    "clipped_relu": (PASS, PASS),
    "incorrect_clipped_relu": (FAIL, PASS),
}


@cache
def cases() -> dict[str, Case]:
    reading = read_paths(sorted(SPECS.glob("*.yaml")))  # those in folders are of test_kernels
    assert reading.errors == ()
    return {case.id: case for case in expand(reading.specs) if case.device == "cpu"}


@cache
def result_of(identity: str) -> CaseResult:
    return run_case(cases()[identity])


def published(stem: str) -> CaseResult:
    names = [identity for identity in cases() if identity.startswith((f"{stem}/published/", f"{stem}/vector/"))]
    return result_of(names[0])


def check(result: CaseResult, name: str) -> CheckResult:
    return next(found for found in result.checks if found.check == name)


@pytest.mark.parametrize("stem", TRUTH)
def test_the_published_case_says_what_is_true_of_the_function(stem: str) -> None:
    result = published(stem)
    found = tuple(check(result, name).verdict for name in ("gradcheck", "gradgradcheck"))
    assert found == TRUTH[stem]


@pytest.mark.parametrize("identity", list(cases()))
def test_every_case_is_as_its_spec_expects(identity: str) -> None:
    result = result_of(identity)
    assert result.as_expected, [(found.check, found.verdict, found.message) for found in result.checks]


@pytest.mark.parametrize("identity", [name for name, case in cases().items() if case.expect.verdict is FAIL])
def test_without_its_expect_a_wrong_function_is_unexpected(identity: str) -> None:
    case = cases()[identity]
    assert not run_case(replace(case, expect=type(case.expect)())).as_expected


def test_the_kink_of_conditional_op_is_counted_and_torch_disagrees() -> None:
    result = check(published("conditional_op"), "gradcheck")
    kinks = [element for finding in result.findings for element in finding.elements]
    assert [(element.input_index, element.verdict) for element in kinks] == [((1,), ElementVerdict.KINK)]
    assert result.torch is not None
    assert result.torch.verdict is FAIL
    assert "kink" in result.torch.message


def test_squared_loss_is_wrong_at_index_0_of_the_prediction_only() -> None:
    result = check(published("custom_squared_loss"), "gradcheck")
    wrong = {
        (finding.wrt, element.input_index)
        for finding in result.findings
        for element in finding.elements
        if element.verdict is ElementVerdict.MISMATCH
    }
    assert wrong == {("prediction", (0,))}


def test_a_rejected_gradient_is_a_finding() -> None:
    finding = check(published("my_complex_function"), "gradcheck").findings[0]
    assert finding.code == "GV312"
    assert "invalid gradient" in finding.message


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_the_forgotten_mask_is_caught_at_every_seed(seed: int) -> None:
    case = cases()["incorrect_clipped_relu/vector/cpu-float64"]
    quick = replace(case, seed=seed, checks=("gradcheck",), torch_gradcheck=TorchGradcheck.NEVER)
    result = check(run_case(quick), "gradcheck")
    outside = [finding for finding in result.findings if finding.code == "GV101"]
    assert result.verdict is FAIL
    assert all(not 0 <= element.value <= 1.5 for finding in outside for element in finding.elements)
    assert sum(finding.total for finding in outside) >= 2
