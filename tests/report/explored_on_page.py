"""Made-up explorations: one with every kind of finding, and a case that fails by it."""

from __future__ import annotations

from typing import Any

from gradverify.result import CaseResult, Discovery, Exploration, Grade, Side, Uncovered, Verdict
from tests.report.report_specimens import case, failing_check, finding

INPUTS = "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1\n"


def discovery(**changes: Any) -> Discovery:
    cause = finding(cause="missing-broadcast-sum", message="2 entries of d y / d x differ\nthe sum is missing")
    values: dict[str, Any] = {
        "grade": Grade.FAILURE,
        "number": 9,
        "changes": ("stride: 1 (was 2)", "x: shape [1, 3] (was [2, 8])"),
        "inputs": INPUTS,
        "spec": f"function: pool.py:Pool\ninputs:\n{INPUTS}",
        "message": "2 entries of d y / d x differ",
        "checks": (failing_check(findings=(cause,), torch=None),),
    }
    return Discovery(**(values | changes))


def exploration(**changes: Any) -> Exploration:
    question = "forward runs and backward raises RuntimeError: shape mismatch"
    values: dict[str, Any] = {
        "tries": 1200,
        "budget": 1200,
        "discoveries": (
            discovery(also=4, saved="found/pool-stride.yaml"),
            discovery(grade=Grade.EXTREME, number=77, changes=("x: × 1e+08",), message="3 entries differ"),
            discovery(grade=Grade.QUESTION, number=80, changes=("x: a leading dimension of 2",), message=question),
        ),
        "lost": ("size: 0 (was 2): crashed with signal SIGABRT",),
        "uncovered": (Uncovered(file="pool.py", line=14, within="forward", text="x > 6", never=Side.TRUE),),
    }
    return Exploration(**(values | changes))


def explored_case(**changes: Any) -> CaseResult:
    values: dict[str, Any] = {
        "verdict": Verdict.FAIL,
        "as_expected": False,
        "message": "found at try 9 of 1,200: stride: 1 (was 2), x: shape [1, 3] (was [2, 8])",
        "explored": exploration(),
    }
    return case("pool/Pool/cpu-float64", **(values | changes))
