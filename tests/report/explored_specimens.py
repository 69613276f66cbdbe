"""Made-up explorations: failures, extremes, questions, tries that did not finish."""

from __future__ import annotations

from typing import Any

from report_specimens import case, element, failing_check, finding

from gradverify.problem import found_at
from gradverify.result import CaseResult, Discovery, Exploration, Grade, Side, Uncovered, Verdict

NEVER_RAN = Uncovered(file="ops.py", line=14, within="backward", text="y = y + b", never=Side.RUN)


def failure(**changes: Any) -> Discovery:
    told = finding(
        of="output",
        wrt="x",
        total=1,
        elements=(element(1, value=1.0, analytic=0.0, numeric=1.0, error_bar=5e-15),),
        cause="missing-broadcast-sum",
        message="1 entry of d output / d x differs; "
        "worst output[1] by x[1]: backward says 0, differences say 1 ± 5e-15\n"
        "each entry of x gets its gradient from the last output that it goes into: the sum over all of them is missing",
    )
    values: dict[str, Any] = {
        "grade": Grade.FAILURE,
        "number": 9,
        "changes": ("stride: 1 (was 2)",),
        "inputs": "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 1\nsize: 2",
        "spec": "function: /home/me/ops.py:Pool\ninputs:\n  x: {values: [[1.0, 2.0, 3.0]]}\n  stride: 1\n  size: 2\n",
        "message": told.message,
        "checks": (failing_check(findings=(told,), torch=None, kinks=0),),
    }
    return Discovery(**(values | changes))


def extreme(**changes: Any) -> Discovery:
    far = {"grade": Grade.EXTREME, "number": 42, "changes": ("x: × 1e+08",), "inputs": "x: {values: [1.0e+8]}"}
    return failure(**(far | changes))


def question(**changes: Any) -> Discovery:
    values: dict[str, Any] = {
        "grade": Grade.QUESTION,
        "number": 30,
        "changes": ("size: 3 (was 2)",),
        "inputs": "x: {values: [[1.0, 2.0, 3.0]]}\nstride: 2\nsize: 3",
        "spec": "",
        "message": "forward runs and backward raises only windows of one or two entries",
    }
    return Discovery(**(values | changes))


def exploration(*discoveries: Discovery, **changes: Any) -> Exploration:
    return Exploration(**({"tries": 120, "budget": 120, "discoveries": discoveries} | changes))


def explored(*discoveries: Discovery, **changes: Any) -> CaseResult:
    """Return a case of which other inputs were tried, with the verdict that the runner gives it."""
    about = {
        key: changes.pop(key) for key in ("tries", "lost", "uncovered", "message", "strict", "broken") if key in changes
    }
    found = exploration(*discoveries, **about)
    values: dict[str, Any] = {"spec": "specs/pool.yaml", "function": "ops.py:Pool", "explored": found}
    if not found:
        told = [found_at(found.failing[0], found)] if found.failing else []
        told += [found.message] if found.broken else []
        verdict = Verdict.FAIL if found.failing else Verdict.ERROR
        values |= {"verdict": verdict, "as_expected": False, "message": "; ".join(told)}
    return case("pool/Pool/cpu-float64", **(values | changes))
