"""Cases whose inputs are changed: what is found, crashes and time-outs of single tries, the specs of what is found."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gradverify.case import (
    Bernoulli,
    Case,
    ExploreRules,
    Exploring,
    Factory,
    Literal,
    Normal,
    Origin,
    SizeRange,
    TensorInput,
    Values,
)
from gradverify.cli.save import save_found
from gradverify.exploration import search
from gradverify.exploration.attempt import Attempt
from gradverify.exploration.change import Base
from gradverify.report.reproduce import reproduce_command
from gradverify.report.to_json import from_json, to_json
from gradverify.result import CaseResult, CheckResult, Exploration, Finding, Grade, Report, Verdict
from gradverify.run.no_answer import lost_case
from gradverify.run.options import Event, RunOptions, Started, TryingInputs
from gradverify.run.run_case import run_case
from gradverify.run.session import run_cases
from gradverify.run.task import Engine, Loss, TaskLost
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.read import read_paths
from tests.run.making import OPS, case, outcome, target
from tests.run.processes import left_over, offspring

pytestmark = pytest.mark.slow

BUDGET = 30


def pooled(name: str, **changes: Any) -> Case:
    inputs = {
        "x": TensorInput(origin=Normal(), shape=(2, 6)),
        "size": Literal(value=2),
        "stride": Literal(value=2),
    }
    values: dict[str, Any] = {"inputs": inputs, "explore": ExploreRules(budget=BUDGET)}
    return case(name, "pooled.py", **(values | changes))


def explored(wanted: Case, engine: Engine, **request: Any) -> tuple[CaseResult, Exploration]:
    (result,) = outcome([wanted], engine, exploring=Exploring(**request)).report.cases
    assert result.explored is not None
    return result, result.explored


def changes(found: Exploration) -> list[tuple[str, ...]]:
    return [failure.changes for failure in found.failures]


def test_a_mistake_that_shows_at_another_stride_fails_the_case(engine: Engine) -> None:
    result, found = explored(pooled("Pool"), engine)
    assert all(check.verdict is Verdict.PASS for check in result.checks)
    assert (result.verdict, result.as_expected, found.tries) == (Verdict.FAIL, False, BUDGET)
    first = found.failures[0]
    assert result.message == f"found at try {first.number} of {BUDGET}: {', '.join(first.changes)}"
    told = [phrase for failure in found.failures for phrase in (*failure.changes, *failure.also_at)]
    assert any("stride: 1 (was 2)" in phrase for phrase in told)
    assert {finding.code for failure in found.failures for check in failure.checks for finding in check.findings} == {
        "GV101"
    }


def test_a_right_function_passes(engine: Engine) -> None:
    result, found = explored(pooled("RightPool"), engine)
    assert (result.verdict, found.discoveries, found.lost, found.tries) == (Verdict.PASS, (), (), BUDGET)


def test_the_budget_of_the_request_is_in_place_of_the_spec(engine: Engine) -> None:
    _, found = explored(pooled("RightPool"), engine, budget=3)
    assert (found.tries, found.budget) == (3, 3)


def test_what_backward_refuses_is_a_question_and_fails_nothing(engine: Engine) -> None:
    result, found = explored(pooled("OnlySmallWindows"), engine, strict=True)
    assert (result.verdict, result.as_expected, result.message) == (Verdict.PASS, True, "")
    assert {each.grade for each in found.discoveries} == {Grade.QUESTION}


def test_extremes_fail_only_a_strict_search(engine: Engine) -> None:
    wanted = case("WrongFarAway", "pooled.py", explore=ExploreRules(budget=100))
    mild, found = explored(wanted, engine)
    assert (mild.verdict, found.strict, bool(found)) == (Verdict.PASS, False, True)
    assert found.extremes and not found.failures
    strict, same = explored(wanted, engine, strict=True)
    assert (strict.verdict, strict.as_expected, bool(same)) == (Verdict.FAIL, False, False)
    assert same.discoveries == found.discoveries
    assert strict.message.startswith(f"found at try {found.extremes[0].number} of ")


def test_a_case_that_fails_as_written_is_not_explored(engine: Engine) -> None:
    result, found = explored(case("WrongCube", explore=ExploreRules(budget=5)), engine)
    assert (result.verdict, found.tries) == (Verdict.FAIL, 0)
    assert found.message == "the inputs as written fail"


FACTORY = """
import torch

calls = []

def make():
    calls.append(1)
    if len(calls) > {most}:
        raise RuntimeError("no more numbers")
    return torch.tensor([[0.5, -1.0, 2.0, 0.1, -0.3, 1.2], [0.7, 0.4, -0.2, 1.5, 0.9, -0.8]])
"""


def of_factory(name: str, file: Path, most: int) -> CaseResult:
    """Return what exploring an operation finds whose factory raises after a number of calls."""
    file.write_text(FACTORY.format(most=most))
    inputs = {
        "x": TensorInput(origin=Factory(target=target("make", file))),
        "size": Literal(value=2),
        "stride": Literal(value=2),
    }
    return run_case(pooled(name, inputs=inputs, exploring=Exploring()))


@pytest.mark.parametrize("most", range(1, 30, 4))
def test_what_a_factory_raises_during_the_search_is_no_defect(most: int, tmp_path: Path) -> None:
    result = of_factory("RightPool", tmp_path / f"made_{most}.py", most)
    assert "defect" not in result.message
    assert result.explored is None or not result.explored.broken
    if result.verdict is Verdict.ERROR and result.message:
        assert result.message.startswith("GV902: RuntimeError: no more numbers (")
        assert f"made_{most}.py:9" in result.message


def test_what_was_found_before_a_factory_raised_is_kept(tmp_path: Path) -> None:
    results = [of_factory("RightPool", tmp_path / f"found_{most}.py", most) for most in range(3, 12)]
    ended = [result for result in results if result.message.startswith("GV902") and result.explored is not None]
    assert ended
    assert all((result.verdict, result.as_expected) == (Verdict.ERROR, False) for result in ended)
    assert all([check.verdict for check in result.checks] == [Verdict.PASS] for result in ended)
    assert {result.explored.message for result in ended if result.explored} == {"broken off"}
    assert max(result.explored.tries for result in ended if result.explored) > 0
    assert all(reproduce_command(result).startswith("gradverify explore ") for result in ended)


def test_a_failure_that_was_found_before_a_factory_raised_fails_the_case(tmp_path: Path) -> None:
    result = of_factory("Pool", tmp_path / "made.py", 30)
    found = result.explored
    assert found is not None and found.failures and 0 < found.tries < BUDGET
    assert (result.verdict, result.as_expected, found.message) == (Verdict.FAIL, False, "broken off")
    assert result.message.startswith("found at try 1 of ")
    assert "; GV902: RuntimeError: no more numbers (" in result.message


@pytest.mark.parametrize("origin", [Normal(), Values(values=[[0.5, -1.0], [2.0, 0.1], [-0.3, 1.2], [0.7, 0.4]])])
def test_names_of_sizes_stay_with_a_tensor_that_gets_a_leading_dimension(origin: Origin, engine: Engine) -> None:
    x = TensorInput(origin=origin, shape=(4, 2), sizes=("n", "2 * m"))
    w = TensorInput(origin=Normal(), shape=(2, 3), sizes=("2 * m", "k"))
    rules = ExploreRules(budget=60, sizes={"n": SizeRange(low=2, multiple_of=2)})
    wanted = case("Product", "pooled.py", inputs={"x": x, "w": w}, dims={"n": 4, "m": 1, "k": 3}, explore=rules)
    result, found = explored(wanted, engine)
    first = found.failures[0]
    assert result.verdict is Verdict.FAIL and codes_of(first.checks) == {"GV101"}
    assert first.changes == ("x: shape [2, 2, 2] (was [4, 2])", "w: shape [2, 1] (was [2, 3])")
    assert "dims: {n: 2, m: 1, k: 1}\n" in first.spec
    assert "shape: [2, n, 2 * m]" in first.spec and "shape: [2 * m, k]" in first.spec


@pytest.mark.parametrize("name", ["Pool", "RightPool"])
def test_what_was_found_before_a_defect_of_the_search_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = search.attempt

    def defective(base: Base, found: Case, *rules: Any, **options: Any) -> Attempt:
        if found.inputs["stride"] == Literal(value=3):
            return tried(replace(base, case=cast(Any, None)), found, *rules, **options)
        return tried(base, found, *rules, **options)

    monkeypatch.setattr(search, "attempt", defective)
    result = run_case(pooled(name, exploring=Exploring()))
    found = result.explored
    assert [check.verdict for check in result.checks] == [Verdict.PASS]
    assert found is not None and found.broken and 0 < found.tries < BUDGET
    assert [bool(found), result.as_expected] == [False, False]
    assert result.verdict is (Verdict.FAIL if found.failures else Verdict.ERROR)
    assert bool(found.failures) is (name == "Pool")
    assert re.search(
        r"gradverify itself raised AttributeError: 'NoneType' object has no attribute 'checks' .*"
        r"in gradverify/exploration/attempt\.py:\d+"
        r" at the try `stride: 3 \(was 2\)`",
        result.message,
    )
    assert reproduce_command(result).startswith("gradverify explore ")


def test_wrong_second_derivative_ends_no_search_for_wrong_first_ones(engine: Engine) -> None:
    result, found = explored(pooled("DetachedPool", checks=("gradcheck", "gradgradcheck")), engine)
    assert [check.verdict for check in result.checks] == [Verdict.PASS, Verdict.FAIL]
    assert found.message == "the second derivative is wrong at the inputs as written, and was left out"
    assert [failure.checks[0].check for failure in found.failures] == ["gradcheck"]


def test_trying_is_told_after_the_start(engine: Engine) -> None:
    events: list[Event] = []
    outcome([pooled("RightPool")], engine, events, exploring=Exploring())
    assert [type(event) for event in events[:2]] == [Started, TryingInputs]
    told = [event for event in events if isinstance(event, TryingInputs)]
    assert (told[0].tries, told[0].failures) == (0, 0)


MIXED = [
    *(pooled(name) for name in ("Pool", "RightPool", "OnlySmallWindows")),
    pooled("EndsAndHangs", timeout=2.0, draw_key="spec/Pool"),
]


@pytest.fixture(scope="module")
def mixed(engine: Engine) -> Report:
    """Return what a pool of two workers finds of MIXED."""
    return outcome(MIXED, engine, exploring=Exploring()).report


def test_tries_that_crash_or_hang_are_lost_and_the_others_go_on(mixed: Report) -> None:
    plain, _, _, result = mixed.cases
    expected, found = plain.explored, result.explored
    assert expected is not None and found is not None
    assert changes(found) == changes(expected)
    assert [each.inputs for each in found.failures] == [each.inputs for each in expected.failures]
    assert (result.verdict, found.tries) == (Verdict.FAIL, BUDGET)
    assert result.checks == plain.checks
    shown = "pooled.py"
    crashed = [phrase for phrase in found.lost if "SIGABRT" in phrase]
    hung = [phrase for phrase in found.lost if "timed out after 2 s" in phrase]
    assert crashed[0].startswith("stride: 3 (was 2): crashed: SIGABRT") and shown in crashed[0]
    assert hung[0].startswith("size: 1 (was 2): timed out after 2 s, last in ") and shown in hung[0]
    assert len(crashed) + len(hung) == len(found.lost)
    assert result.seconds > 2.0 * len(hung)


def test_same_bytes_with_one_worker_and_with_two(alone: Engine, mixed: Report) -> None:
    def text(report: Report) -> str:
        timeless = tuple(replace(result, seconds=0.0) for result in report.cases)
        return to_json(replace(report, summary=replace(report.summary, seconds=0.0), cases=timeless))

    assert text(mixed) == text(outcome(MIXED, alone, exploring=Exploring()).report)


@pytest.mark.parametrize("name", ["Pool", "WrongFarAway"])
def test_a_saved_spec_fails_with_the_same_codes(name: str, engine: Engine, tmp_path: Path) -> None:
    """The folder of the specs is not there yet, and their paths are relative to it."""
    wanted = pooled(name) if name == "Pool" else case(name, "pooled.py", explore=ExploreRules(budget=100))
    folder = tmp_path / "new" / "found"
    request = Exploring(strict=True, folder=str(folder))
    report = outcome([wanted], engine, exploring=request).report
    saved = save_found(report, folder)
    assert saved.lost == () and saved.report.cases[0].explored is not None
    failing = saved.report.cases[0].explored.failing
    assert failing
    for found in failing:
        assert f"function: {os.path.relpath(OPS / 'pooled.py', folder)}:{name}\n" in found.spec
        assert codes(run_spec(Path(found.saved), engine).cases[0]) == codes_of(found.checks)


def run_spec(path: Path, engine: Engine) -> Report:
    reading = read_paths([path])
    assert reading.errors == ()
    cases = expand(reading.specs, Overrides())
    ran = run_cases(cases, reading.specs, RunOptions(), lambda _: None, engine)
    assert ran.errors == ()
    return ran.report


def codes(result: CaseResult) -> set[str]:
    return codes_of(check for check in result.checks if check.check == "gradcheck")


def codes_of(checks: Any) -> set[str]:
    return {finding.code for check in checks for finding in check.findings if finding.verdict is Verdict.FAIL}


SPEC = """
function: {ops}:HangsOutside
inputs: {{x: {{shape: [2, 6]}}, size: 2, stride: 2}}
checks: [gradcheck]
cases:
  narrow: {{explore: {{fixed: [size, stride], budget: 5}}}}
  wide: {{}}
"""


@pytest.mark.slow
def test_an_interrupt_ends_a_search_and_what_had_finished_is_reported(tmp_path: Path) -> None:
    out, err, report = interrupted(tmp_path, SPEC.format(ops=OPS / "pooled.py"))
    assert err.endswith("gradverify: interrupted: 1 of 2 cases had finished\n")
    assert re.search(r"gradverify: spec/wide/cpu-float64: \d+ tr(y|ies) without a failure before the interrupt\n", err)
    assert "explore 5 tries" in out
    (finished,) = report.cases
    assert finished.id == "spec/narrow/cpu-float64"
    assert finished.explored is not None and finished.explored.tries == 5


@pytest.mark.slow
def test_an_interrupt_keeps_what_a_search_has_found(tmp_path: Path) -> None:
    spec = f"function: {OPS}/pooled.py:HangsWhenLarger\ninputs: {{x: {{shape: [2, 6]}}, size: 2, stride: 2}}\n"
    _, _, report = interrupted(tmp_path, spec)
    (found,) = report.cases
    assert found.explored is not None and found.explored.failures
    assert found.explored.message == "interrupted"
    assert (found.verdict, found.as_expected, report.not_run) == (Verdict.FAIL, False, ())


def interrupted(folder: Path, spec: str) -> tuple[str, str, Report]:
    """Interrupt `explore` on a spec when its forward hangs; return stdout, stderr and the report."""
    (folder / "spec.yaml").write_text(spec)
    words = [sys.executable, "-m", "gradverify", "explore", "spec.yaml", "-j", "1", "--json", "out.json"]
    with subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            while process.poll() is None and not (folder / "hangs").exists():
                time.sleep(0.01)
            workers = offspring(process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert workers and not left_over(workers)
    return out, err, from_json((folder / "out.json").read_text(encoding="utf-8"))


def test_finished_checks_keep_their_verdicts_if_the_worker_is_lost_before_the_first_try() -> None:
    wanted = replace(pooled("RightPool"), checks=("gradcheck",), exploring=Exploring())
    passed = CheckResult(check="gradcheck", verdict=Verdict.PASS)
    lost = TaskLost(key=wanted.id, loss=Loss.CRASH, detail="crashed: SIGABRT", output="", seconds=1.0, checks=(passed,))
    result = lost_case(wanted, lost)
    assert (result.verdict, result.checks) == (Verdict.PASS, (passed,))
    assert result.explored is not None
    assert (result.explored.tries, result.explored.message) == (
        0,
        "before the first try, the worker crashed: SIGABRT",
    )


def test_server_of_workers_does_not_import_what_only_explored_cases_need() -> None:
    late = "{'gradverify.exploration.search', 'gradverify.spec.write', 'pydantic'}"
    code = f"import gradverify.run.server, sys; assert not {late} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_inputs_are_not_changed_after_a_check_that_ran_out_of_time() -> None:
    ended = Finding(code="GV904", verdict=Verdict.INCONCLUSIVE, message="timed out after 2 s: 1 of 12 columns compared")
    late = CheckResult(check="gradcheck", verdict=Verdict.INCONCLUSIVE, message=ended.message, findings=(ended,))
    found = run_case(pooled("Pool", checks=("gradcheck",), exploring=Exploring(checks=(late,))))
    assert (found.verdict, found.checks) == (Verdict.INCONCLUSIVE, (late,))
    assert found.explored is not None
    assert (found.explored.tries, found.explored.message) == (0, "the inputs as written could not be judged")


def of_file(tmp_path: Path, source: str, spec: str) -> Exploration:
    """Return what changing the inputs of the only case finds, of a spec beside a module `ops.py`."""
    (tmp_path / "ops.py").write_text(source, encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(spec, encoding="utf-8")
    reading = read_paths([tmp_path])
    assert reading.errors == ()
    (wanted,) = expand(reading.specs)
    found = run_case(replace(wanted, exploring=Exploring())).explored
    assert found is not None
    return found


STRIDED = """
import torch

class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, stride):
        ctx.shape, ctx.stride = x.shape, stride
        return x[..., ::stride].clone()

    @staticmethod
    def backward(ctx, grad):
        found = grad.new_zeros(ctx.shape)
        found[..., : grad.shape[-1]] = grad  # right for a stride of 1 only
        return found, None

class Strided(torch.nn.Module):
    def __init__(self, stride=1):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return Step.apply(x, self.stride)
"""


@pytest.mark.parametrize("given", ["init: {stride: 1}\n", ""])
def test_arguments_of_a_constructor_are_changed(tmp_path: Path, given: str) -> None:
    found = of_file(tmp_path, STRIDED, f"function: ops.py:Strided\n{given}inputs: {{x: {{shape: [2, 5]}}}}\n")
    first = found.failures[0]
    assert any("init.stride: 2" in phrase for phrase in first.changes), first.changes
    assert "init: {stride: 2}" in first.spec and "init: {stride: 2}" in first.inputs


def test_argument_of_a_constructor_that_is_fixed_stays(tmp_path: Path) -> None:
    spec = "function: ops.py:Strided\ninit: {stride: 1}\ninputs: {x: {shape: [2, 5]}}\n"
    for rule in ("fixed: [init.stride]", "choices: {init.stride: [1]}", "ranges: {init.stride: [1, 1]}"):
        found = of_file(tmp_path, STRIDED, f"{spec}explore: {{{rule}}}\n")
        assert found.failures == () and found.tries > 20, rule


SQUARED = """
import torch

class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, twice):
        ctx.save_for_backward(a)
        ctx.twice = twice
        return a @ a if twice else a.sin()

    @staticmethod
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return (a.mT @ grad if ctx.twice else grad * a.cos()), None
"""


@pytest.mark.parametrize("constraint", ["symmetric", "positive_definite", "triangular", "orthogonal"])
def test_matrices_with_a_constraint_are_made_small(tmp_path: Path, constraint: str) -> None:
    spec = f"function: ops.py:Squared\ninputs: {{a: {{shape: [3, 3], constraint: {constraint}}}, twice: false}}\n"
    found = of_file(tmp_path, SQUARED, spec)
    assert "twice: true (was false)" in found.failures[0].changes
    assert any("shape" in phrase for phrase in found.failures[0].changes)


INVERSE = """
import torch

class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, n):
        ctx.save_for_backward(a)
        ctx.n = n
        return torch.linalg.matrix_power(a, n)

    @staticmethod
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        with torch.enable_grad():
            a = a.detach().requires_grad_()
            found = torch.autograd.grad(torch.linalg.matrix_power(a, ctx.n), a, grad)
        return found[0], None
"""


def test_singular_matrix_is_no_try_where_another_argument_inverts_it(tmp_path: Path) -> None:
    spec = "function: ops.py:Power\ninputs: {a: {shape: [3, 3], normal: [0, 1]}, n: 2}\nchecks: [gradcheck]\n"
    assert of_file(tmp_path, INVERSE, spec).failures == ()


ENTROPY = """
import torch


class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return torch.where(target == 1, x, -x).sigmoid().log()

    @staticmethod
    def backward(ctx, grad):
        x, target = ctx.saved_tensors
        return grad * (target - x.sigmoid()), None
"""


@pytest.mark.parametrize(("origin", "fails"), [(Bernoulli(p=0.5), False), (Values(values=[0.0, 1.0, 1.0]), True)])
def test_values_drawn_as_zero_or_one_stay_so(tmp_path: Path, engine: Engine, origin: Origin, fails: bool) -> None:
    (tmp_path / "entropy.py").write_text(ENTROPY)
    targets = TensorInput(origin=origin, shape=(3,), dtype="float64", requires_grad=False)
    inputs = {"x": TensorInput(origin=Normal(), shape=(3,)), "target": targets}
    wanted = case("Entropy", tmp_path / "entropy.py", inputs=inputs, explore=ExploreRules(budget=100))
    assert bool(explored(wanted, engine)[1].failures) is fails
