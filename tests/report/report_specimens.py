"""Made-up results: one of each kind a report has to show."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, settings

from gradverify.result import (
    CaseResult,
    CheckResult,
    Element,
    ElementVerdict,
    Environment,
    Evaluations,
    Finding,
    Method,
    Report,
    Source,
    TorchOutcome,
    Verdict,
    summarize,
)

# Reports are trees of lists of trees. About one run in four hundred draws twenty that are too large before ten that are
# not, which hypothesis would take for a mistake in the test.
of_any_report = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def element(number: int = 0, **changes: Any) -> Element:
    values: dict[str, Any] = {
        "output_index": (number,),
        "input_index": (number,),
        "value": 2.512345678901 + number,
        "analytic": 1.0,
        "numeric": 0.0,
        "error_bar": 2e-11,
        "error": 1.0,
        "allowed": 3.1e-10,
        "verdict": ElementVerdict.MISMATCH,
    }
    return Element(**(values | changes))


def finding(**changes: Any) -> Finding:
    values: dict[str, Any] = {
        "code": "GV101",
        "verdict": Verdict.FAIL,
        "of": "y",
        "wrt": "x",
        "message": "backward differs from the derivative of forward",
        "total": 2,
        "elements": (element(1), element(4, analytic=1.0, numeric=0.25, error=0.75)),
    }
    return Finding(**(values | changes))


def check(name: str = "gradcheck", **changes: Any) -> CheckResult:
    values: dict[str, Any] = {
        "check": name,
        "verdict": Verdict.PASS,
        "method": Method.DENSE,
        "entries": 25,
        "max_error": 3e-12,
        "max_error_bar": 2e-11,
        "detection_limit": 1e-7,
        "evaluations": Evaluations(forward=12, backward=5),
        "torch": TorchOutcome(name="gradcheck", verdict=Verdict.PASS),
    }
    return CheckResult(**(values | changes))


def contract(**changes: Any) -> CheckResult:
    return CheckResult(**({"check": "contract", "verdict": Verdict.PASS} | changes))


def case(name: str = "clipped_relu/vector/cpu-float64", **changes: Any) -> CaseResult:
    values: dict[str, Any] = {
        "id": name,
        "spec": "specs/clipped_relu.yaml",
        "line": 12,
        "function": "ops/clipped_relu.py:ClippedReLUFunction",
        "source": Source(file="specs/ops/clipped_relu.py", line=31),
        "device": "cpu",
        "dtype": "float64",
        "sample": 0,
        "seed": 0,
        "verdict": Verdict.PASS,
        "expected": Verdict.PASS,
        "as_expected": True,
        "seconds": 0.0213,
        "checks": (check(), check("gradgradcheck", entries=30), contract()),
    }
    return CaseResult(**(values | changes))


def report(*cases: CaseResult, seconds: float = 1.234) -> Report:
    return Report(
        gradverify="0.1.0",
        environment=Environment(python="3.11.7", torch="2.9.0", platform="Linux", devices=("cpu",), seed=None),
        summary=summarize(cases, seconds),
        cases=cases,
    )


def failing_check(**changes: Any) -> CheckResult:
    values = {"verdict": Verdict.FAIL, "mismatched": 2, "kinks": 1, "max_error": 1.0, "findings": (finding(),)}
    torch = TorchOutcome(name="gradcheck", verdict=Verdict.FAIL, message="Jacobian mismatch for output 0")
    return check(**(values | {"torch": torch} | changes))


def masked() -> CaseResult:
    """Wrong first derivative with a cause; torch does not see it."""
    cause = finding(
        cause="missing-mask",
        message="2 entries of d y / d x differ; worst y[1] by x[1]: backward says 1, differences say 0 ± 2e-11\n"
        "analytic is not zero where numeric is, for x > 2; this explains 100 % of the error",
    )
    torch = TorchOutcome(
        name="gradcheck", verdict=Verdict.PASS, message="no input lies beyond the clip value by its step"
    )
    return case(
        "clipped_relu/vector/cpu-float64",
        verdict=Verdict.FAIL,
        as_expected=False,
        checks=(failing_check(findings=(cause,), torch=torch), check("gradgradcheck", entries=30), contract()),
    )


def second_order() -> CaseResult:
    """Complex input, order 2, many elements of very different size, two-dimensional indices."""
    names = [("grad z.imag", "cotangent"), ("grad z.imag", "z.imag")]
    sizes = (1.0, 1e-12, 123456.7, 3e8)
    elements = tuple(
        element(
            number,
            output_index=(number, 11),
            input_index=(127, number),
            value=-math.pi * size,
            analytic=1.0009 * size,
            numeric=size,
            error_bar=2.3e-11 * size,
            error=9e-4 * size,
            allowed=4.5e-10 * size,
        )
        for number, size in enumerate(sizes)
    )
    findings = tuple(
        finding(
            code="GV201",
            of=of,
            wrt=wrt,
            total=20000,
            elements=elements * 3,
            message="backward's own derivative differs from backward",
        )
        for of, wrt in names
    )
    return case(
        "spectral/filtered/cpu-complex128-sample2",
        spec="specs/spectral.yaml",
        dtype="complex128",
        verdict=Verdict.FAIL,
        as_expected=False,
        seconds=12.3,
        checks=(
            check(entries=1024, kinks=3),
            failing_check(
                check="gradgradcheck",
                entries=1_000_000,
                mismatched=40_000,
                kinks=0,
                method=Method.PROBED,
                findings=findings,
            ),
            contract(),
        ),
    )


def undetermined() -> CaseResult:
    """Not finite and not to be determined."""
    elements = (
        element(0, analytic=math.nan, numeric=1.0, error=math.nan, allowed=1e-9),
        element(1, analytic=math.inf, numeric=-0.001234, error=math.inf, allowed=1e-9),
        element(
            2,
            value=0.0,
            analytic=0.5,
            numeric=0.4,
            error_bar=0.3,
            error=0.1,
            allowed=3.0,
            verdict=ElementVerdict.UNDETERMINED,
        ),
        element(
            3, value=0.0, numeric=math.nan, error_bar=math.inf, error=math.nan, allowed=0.0, verdict=ElementVerdict.JUMP
        ),
    )
    torch = TorchOutcome(name="gradcheck", verdict=Verdict.FAIL, message="its step straddles the jump at x = 0")
    found = finding(
        code="GV104",
        verdict=Verdict.INCONCLUSIVE,
        total=4,
        elements=elements,
        message="the forward is too noisy: 3e-3 of its size",
    )
    return case(
        "steps/noisy/cpu-float64",
        spec="specs/steps.yaml",
        verdict=Verdict.INCONCLUSIVE,
        as_expected=False,
        checks=(check(verdict=Verdict.INCONCLUSIVE, undetermined=4, torch=torch, findings=(found,)), contract()),
    )


def crashed() -> CaseResult:
    """An exception whose text tries to steer the terminal."""
    message = "forward raised ValueError: \x1b[31mred\x1b[0m [bold]not markup[/bold] \x07\nline two \u202eevil"
    found = Finding(code="GV902", verdict=Verdict.ERROR, message=message)
    return case(
        "broken/[red]name/cpu-float64",
        verdict=Verdict.ERROR,
        as_expected=False,
        source=None,
        checks=(CheckResult(check="gradcheck", verdict=Verdict.ERROR, findings=(found,)),),
    )


def timed_out() -> CaseResult:
    return case(
        "slow/default/cpu-float64",
        verdict=Verdict.ERROR,
        as_expected=False,
        seconds=60.0,
        checks=(),
        message="no answer within 60 s",
    )


def skipped(number: int = 0) -> CaseResult:
    return case(
        f"clipped_relu/vector{number}/cuda-float64",
        device="cuda",
        verdict=Verdict.SKIP,
        seconds=0.0,
        checks=(),
        message="this machine has no device cuda (torch.cuda.is_available() is false)",
    )


def wrong_on_purpose() -> CaseResult:
    return case(
        "ste/round/cpu-float64", verdict=Verdict.FAIL, expected=Verdict.FAIL, checks=(failing_check(), contract())
    )


def unexpected_pass() -> CaseResult:
    return case(
        "ste/sign/cpu-float64",
        expected=Verdict.FAIL,
        as_expected=False,
        message="expected fail, and every check passed",
    )


def kinked() -> CaseResult:
    torch = TorchOutcome(
        name="gradcheck",
        verdict=Verdict.FAIL,
        message="1 entry lies at a kink, where its difference is the mean of both slopes",
    )
    return case("relu/at_zero/cpu-float64", checks=(check(kinks=1, torch=torch), check("gradgradcheck"), contract()))


def everything() -> Report:
    return report(
        case(),
        case("clipped_relu/a_rather_long_name_for_a_case/cpu-bfloat16-sample2"),
        kinked(),
        masked(),
        second_order(),
        undetermined(),
        crashed(),
        timed_out(),
        skipped(0),
        skipped(1),
        wrong_on_purpose(),
        unexpected_pass(),
    )
