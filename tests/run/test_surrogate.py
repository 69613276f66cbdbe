"""`surrogate`: backward is compared with the derivative of the function named in the spec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradverify.result import CaseResult, CheckResult, Verdict
from gradverify.run.run_case import run_case
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

OPS = """
import torch
from torch.autograd import Function

class Spike(Function):
    @staticmethod
    def forward(ctx, v, beta):
        ctx.save_for_backward(v)
        ctx.beta = beta
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * v)
        return grad * ctx.beta * s * (1 - s), None

class Broken(Spike):
    @staticmethod
    def backward(ctx, grad):
        return 1.5 * Spike.backward(ctx, grad)[0], None

class Overwrites(Spike):
    @staticmethod
    def backward(ctx, grad):
        found, _ = Spike.backward(ctx, grad)
        grad.zero_()
        return found, None

class Round(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad

class Clip(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.clamp(-1, 1) * 4).round() / 4

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 1)

class Two(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        where = (a > b).long()
        ctx.mark_non_differentiable(where)
        return (a * b).round(), where, (a + b).round()

    @staticmethod
    def backward(ctx, g, _, h):
        a, b = ctx.saved_tensors
        return g * b + h, g * a + h

def soft(v, beta):
    return torch.sigmoid(beta * v)

def same(x):
    return x

def clip(x):
    return x.clamp(-1, 1)

def two(b, a):
    return a * b, (a > b).long(), a + b

def shorter(v, beta):
    return v[:2]

def single(v, beta):
    return v.float()

def detached(x):
    return x + (x.round() - x).detach()

def without_graph(x):
    return torch.from_numpy(x.detach().numpy() * 2)

def raises(v, beta):
    raise ValueError("no soft spike")
"""
SPIKE = "{v: {shape: [4]}, beta: 4.0}"


def run(folder: Path, function: str, surrogate: str, inputs: str = SPIKE, more: str = "") -> CaseResult:
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    text = f"function: ops.py:{function}\nsurrogate: ops.py:{surrogate}\ninputs: {inputs}\n{more}"
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    reading = read_paths([folder / "s.yaml"])
    assert not reading.errors
    (case,) = expand(reading.specs)
    return run_case(case)


def gradcheck(result: CaseResult) -> CheckResult:
    return next(check for check in result.checks if check.check == "gradcheck")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_spike_passes_beside_its_surrogate(tmp_path: Path, dtype: str) -> None:
    result = run(tmp_path, "Spike", "soft", more=f"dtypes: [{dtype}]\n")
    assert [check.verdict for check in result.checks] == [Verdict.PASS] * 3
    assert gradcheck(result).message.endswith("held against the derivative of ops.py:soft")


def test_a_factor_of_three_halves_is_caught_and_named(tmp_path: Path) -> None:
    found = gradcheck(run(tmp_path, "Broken", "soft"))
    (finding,) = found.findings
    assert (found.verdict, finding.code, finding.cause) == (Verdict.FAIL, "GV101", "constant-factor")
    assert finding.message.startswith("held against the derivative of ops.py:soft: 4 entries of d output / d v differ")
    assert "3/2" in finding.message


def test_without_the_surrogate_the_spike_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "Spike", "soft").verdict is Verdict.PASS
    text = (tmp_path / "s.yaml").read_text(encoding="utf-8").replace("surrogate: ops.py:soft\n", "")
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    (case,) = expand(read_paths([tmp_path / "s.yaml"]).specs)
    assert gradcheck(run_case(case)).findings[0].cause == "straight-through"


def test_a_straight_through_estimator_passes_beside_the_identity(tmp_path: Path) -> None:
    assert run(tmp_path, "Round", "same", "{x: {shape: [2, 3]}}").verdict is Verdict.PASS


def test_without_a_reference_that_check_has_nothing_to_compare_a_surrogate_with(tmp_path: Path) -> None:
    more = "dtypes: [bfloat16]\nchecks: [gradcheck, reference]\n"
    result = run(tmp_path, "Round", "same", "{x: {shape: [2, 3]}}", more)
    assert [check.verdict for check in result.checks] == [Verdict.PASS, Verdict.SKIP]
    assert "backward follows the surrogate" in result.checks[1].message


def test_a_wrong_region_is_caught_beside_a_clip(tmp_path: Path) -> None:
    inputs = "{x: {shape: [6], uniform: [-3, 3], avoid: [-1, 1]}}"
    assert run(tmp_path, "Clip", "clip", inputs).verdict is Verdict.PASS
    found = gradcheck(run(tmp_path, "Round", "clip", inputs))
    assert (found.verdict, found.findings[0].cause) == (Verdict.FAIL, "missing-mask")


def test_at_a_kink_of_the_surrogate_both_orders_accept_a_slope_between(tmp_path: Path) -> None:
    result = run(tmp_path, "Clip", "clip", "{x: {values: [1.0, 0.3, -1.0]}}")
    assert [check.verdict for check in result.checks] == [Verdict.PASS] * 3
    assert gradcheck(result).kinks == 2


def test_several_outputs_and_arguments_in_another_order(tmp_path: Path) -> None:
    inputs = "{a: {shape: [3]}, b: {shape: [3]}}"
    assert run(tmp_path, "Two", "two", inputs).verdict is Verdict.PASS
    assert gradcheck(run(tmp_path, "Two", "two", inputs, "outputs: [2]\n")).entries == 18


def test_torchs_own_gradcheck_is_a_skip_with_its_reason(tmp_path: Path) -> None:
    torch = gradcheck(run(tmp_path, "Spike", "soft", more="torch_gradcheck: always\n")).torch
    assert torch is not None
    assert torch.verdict is Verdict.SKIP
    assert torch.message == "torch's check knows no surrogate: it would hold backward against forward"


def test_the_contract_is_that_of_the_function(tmp_path: Path) -> None:
    result = run(tmp_path, "Overwrites", "soft")
    messages = [finding.message for check in result.checks for finding in check.findings if finding.code == "GV306"]
    assert len(messages) == 2  # of gradcheck and of contract
    assert all(message.startswith("backward of Overwrites modifies its cotangent") for message in messages)


@pytest.mark.parametrize(
    ("surrogate", "message"),
    [
        (
            "shorter",
            "ops.py:shorter returns output float64[2], forward output float64[4]; "
            "a surrogate returns what forward does",
        ),
        (
            "single",
            "ops.py:single returns output float32[4], forward output float64[4]; a surrogate returns what forward does",
        ),
    ],
)
def test_a_surrogate_with_other_outputs_is_an_error(tmp_path: Path, surrogate: str, message: str) -> None:
    found = gradcheck(run(tmp_path, "Spike", surrogate))
    (finding,) = found.findings
    assert (found.verdict, finding.code, finding.message) == (Verdict.ERROR, "GV908", message)


def test_a_surrogate_that_raises_is_an_error_with_its_line(tmp_path: Path) -> None:
    result = run(tmp_path, "Spike", "raises")
    (finding,) = gradcheck(result).findings
    assert finding.code == "GV908"
    assert finding.message.startswith("surrogate raised ValueError: no soft spike (")
    assert finding.message.endswith(" in raises)")
    assert result.checks[2].verdict is Verdict.PASS  # contract does not call the surrogate


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_surrogate_that_detaches_its_rounding_is_an_error_that_says_so(tmp_path: Path, dtype: str) -> None:
    found = gradcheck(run(tmp_path, "Round", "detached", "{x: {shape: [2, 3]}}", f"dtypes: [{dtype}]\n"))
    (finding,) = found.findings
    assert (found.verdict, finding.code) == (Verdict.ERROR, "GV908")
    assert finding.message.startswith(
        "ops.py:detached has a gradient that is not its derivative, so that it does not say"
    )


@pytest.mark.parametrize("surrogate", ["without_graph", "clip"])
def test_beside_a_surrogate_without_a_gradient_or_with_a_right_one_a_wrong_backward_fails(
    tmp_path: Path, surrogate: str
) -> None:
    found = gradcheck(run(tmp_path, "Round", surrogate, "{x: {values: [-2.0, 0.3, 2.0]}}"))
    assert (found.verdict, found.findings[0].code) == (Verdict.FAIL, "GV101")


@pytest.mark.parametrize(("mask", "verdict"), [(" * ((v > low) & (v < high))", Verdict.PASS), ("", Verdict.FAIL)])
def test_the_quantiser_in_the_docs_passes_and_one_without_its_mask_fails(
    tmp_path: Path, mask: str, verdict: Verdict
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```(\w+)\n((?:(?!```).)*FakeQuant.*?)```", page, re.DOTALL))
    (tmp_path / "ops").mkdir()
    code = blocks["python"].replace(" * ((v > low) & (v < high))", mask)
    (tmp_path / "ops" / "quant.py").write_text(code, encoding="utf-8")
    (tmp_path / "quant.yaml").write_text(blocks["yaml"], encoding="utf-8")
    reading = read_paths([tmp_path / "quant.yaml"])
    assert not reading.errors
    (case,) = expand(reading.specs)
    assert gradcheck(run_case(case)).verdict is verdict
