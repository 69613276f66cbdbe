"""`gradverify check`: one function, without a spec."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gradverify.cli.app import app

OPS = """
import torch


class ClippedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clip):
        ctx.save_for_backward(x)
        return x.clamp(0, clip)

    @staticmethod
    def backward(ctx, grad):
        return grad.clone(), None


class Annotated(torch.nn.Module):
    def __init__(self, size: int, bias: bool, padding: "str", low: float):
        super().__init__()
        raise ValueError(f"no padding is called {padding}")

    def forward(self, x: torch.Tensor, steps: int):
        return x * steps


class Scaled(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x, factor=2.0):
        return factor * self.weight * x


def plain(x, clip):
    return x.clamp(0, clip)
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return the command, which runs in this process."""
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return lambda *words: CliRunner().invoke(app, ["check", *words, "-j", "0"])


def command(words: str) -> list[str]:
    name, sub, *rest = shlex.split(words)
    assert (name, sub) == ("gradverify", "check")
    return rest


def test_a_wrong_gradient_fails_with_its_cause(check) -> None:
    ran = check("ops.py:ClippedReLU", "x:5", "clip=1.5")
    assert ran.exit_code == 1, ran.stderr
    assert "FAIL   check/ClippedReLU/cpu-float64" in ran.stdout
    assert "cause missing-mask: 3 of 5 elements differ" in ran.stdout
    assert "reproduce: gradverify check ops.py:ClippedReLU x:5 clip=1.5\n" in ran.stdout


def test_the_command_to_reproduce_a_failure_repeats_it(check) -> None:
    words = [
        "ops.py:ClippedReLU",
        "x={shape: [5], uniform: [-3, 3]}",
        "clip=1.5",
        "--check",
        "gradcheck",
        "--seed",
        "3",
    ]
    ran = check(*words)
    told = next(row for row in ran.stdout.splitlines() if "gradverify check" in row)
    again = check(*command(told.replace("reproduce: ", "")))
    assert ran.stdout.splitlines()[2:-1] == again.stdout.splitlines()[2:-1]


def test_tolerances_are_kept_in_the_command_and_in_the_saved_spec(check) -> None:
    words = ("ops.py:ClippedReLU", "x:5", "clip=1.5", "--check", "gradcheck")
    assert check(*words, "--atol", "2").exit_code == 0
    ran = check(*words, "--atol", "0.5", "--rtol", "1e-5")
    assert ran.exit_code == 1
    assert "gradverify check ops.py:ClippedReLU x:5 clip=1.5 --rtol 1e-5 --atol 0.5 --check gradcheck" in ran.stdout
    check(*words, "--rtol", "1e-5", "--save", "clipped.yaml")
    assert "rtol: 1.0e-5\n" in Path("clipped.yaml").read_text(encoding="utf-8")


def test_checks_may_be_given_with_commas_between_them(check) -> None:
    words = ("ops.py:ClippedReLU", "x:5", "clip=1.5")
    ran = check(*words, "--check", "contract,forward_ad", "--dtype", "float64, float32", "--json", "report.json")
    assert ran.exit_code == 0, ran.stderr
    cases = json.loads(Path("report.json").read_text(encoding="utf-8"))["cases"]
    assert [case["dtype"] for case in cases] == ["float64", "float32"]
    assert [[each["check"] for each in case["checks"]] for case in cases] == [["contract", "forward_ad"]] * 2
    assert (
        "--check: there is no forward_da; did you mean forward_ad?"
        in check(*words, "--check", "contract,forward_da").stderr
    )


def test_a_module_with_arguments_and_a_default_passes(check) -> None:
    ran = check("ops.py:Scaled", "x:2,3", "init.size=3")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "pass   check/Scaled/cpu-float64" in ran.stdout


def test_missing_and_unknown_names_are_told_together(check) -> None:
    ran = check("ops.py:ClippedReLU", "y:5")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "ops.py:ClippedReLU: inputs: `clip` is missing, `forward` has no default for it "
        "(add clip:4 for a tensor of four entries, or clip=0.5)",
        "ops.py:ClippedReLU: inputs: `x` is missing, `forward` has no default for it "
        "(add x:4 for a tensor of four entries, or x=0.5)",
        "y:5: inputs.y: `forward` has no parameter `y` (it takes: x, clip)",
        "gradverify: 3 mistakes in arguments, nothing was run",
    ]


def test_without_any_input_the_missing_ones_are_named(check) -> None:
    assert "`size` is missing" in check("ops.py:Scaled", "x:3").stderr
    ran = check("ops.py:Scaled", "x:3", "init.sise=3")
    assert "ops.py:Scaled: init: `size` is missing" in ran.stderr
    assert "(add init.size=4)" in ran.stderr
    assert "init.sise=3: init.sise: the constructor of `Scaled` has no parameter `sise`" in ran.stderr
    assert check("ops.py:ClippedReLU").stderr.count("is missing") == 2


def test_what_is_offered_for_a_missing_argument_fits_its_annotation(check) -> None:
    hints = [line.rpartition("(")[2] for line in check("ops.py:Annotated").stderr.splitlines()]
    assert sorted(hints[:-1]) == [
        "add init.bias=true)",
        "add init.low=0.5)",
        "add init.padding=text)",
        "add init.size=4)",
        "add steps=4)",
        "add x:4 for a tensor of four entries, or x=0.5)",
    ]


def test_a_constructor_that_raises_is_named(check) -> None:
    given = ("init.size=4", "init.bias=true", "init.padding=text", "init.low=0.5")
    ran = check("ops.py:Annotated", "x:4", "steps=4", *given)
    assert ran.exit_code == 1, ran.stderr
    assert "GV902: the constructor of `Annotated` raised ValueError: no padding is called text (ops.py:19)" in (
        ran.stdout
    )


def test_an_argument_of_the_constructor_among_the_inputs_is_told_where_it_belongs(check) -> None:
    ran = check("ops.py:Scaled", "x:3", "size=3")
    assert "size=3: inputs.size: `forward` has no parameter `size` (the constructor has one: write init.size)" in (
        ran.stderr
    )


def test_a_reference_is_compared_in_low_precision(check) -> None:
    words = ("ops.py:ClippedReLU", "x:5", "clip=1.5", "--dtype", "bfloat16", "--reference", "ops.py:plain")
    ran = check(*words)
    assert ran.exit_code == 1, ran.stderr
    assert "reference GV702" in ran.stdout


def test_changed_inputs(check) -> None:
    ran = check("ops.py:Scaled", "x:3", "init.size=3", "--explore=5", "--json", "-")
    assert ran.exit_code == 0, ran.stderr
    (case,) = json.loads(ran.stdout)["cases"]
    assert case["explored"]["tries"] == 5
    ran = check("ops.py:Scaled", "x:3", "init.size=3", "--budget", "5")
    assert (ran.exit_code, ran.stderr) == (2, "gradverify: --budget says how inputs are changed; give --explore too\n")


@pytest.mark.slow
def test_what_a_function_prints_in_this_process_is_not_in_the_report(check, capfd) -> None:
    printing = "print('from Python')\n    os.write(1, b'from a descriptor\\n')\n    ctypes.CDLL(None).puts(b'from C')"
    text = f"import ctypes, os, sys\nprint('at import')\n\n\ndef double(x):\n    {printing}\n    return 2 * x\n"
    Path("noisy.py").write_text(text, encoding="utf-8")
    ran = check("noisy.py:double", "x:3", "--json", "-")
    assert ran.exit_code == 0, ran.stderr
    assert json.loads(ran.stdout)["cases"][0]["verdict"] == "pass"
    assert "at import\n" in ran.stderr and "from Python\n" in ran.stderr
    os.write(1, b"afterwards\n")
    printed = capfd.readouterr()
    assert printed.out == "afterwards\n"
    assert "from a descriptor\n" in printed.err and "from C\n" in printed.err


def test_a_saved_spec_says_the_same(check) -> None:
    words = ("ops.py:ClippedReLU", "x={shape: [5], uniform: [-3, 3], avoid: [0, 1.5]}", "clip=1.5")
    options = ("--dtype", "float64", "--dtype", "float32", "--samples", "2", "--save", "specs/new/clipped.yaml")
    ran = check(*words, *options, "--json", "checked.json")
    assert (ran.exit_code, ran.stderr) == (1, "gradverify: saved as specs/new/clipped.yaml\n")
    assert Path("specs/new/clipped.yaml").read_text(encoding="utf-8") == (
        "# gradverify check ops.py:ClippedReLU 'x={shape: [5], uniform: [-3, 3], avoid: [0, 1.5]}' clip=1.5\n"
        "function: ../../ops.py:ClippedReLU\n"
        "inputs:\n"
        "  x: {shape: [5], uniform: [-3, 3], avoid: [0, 1.5]}\n"
        "  clip: 1.5\n"
        "dtypes: [float64, float32]\n"
        "samples: 2\n"
        "seed: 0\n"
    )
    again = CliRunner().invoke(app, ["run", "specs/new/clipped.yaml", "-j", "0", "--json", "run.json"])
    assert again.exit_code == 1, again.stderr
    checked, run = (
        json.loads(Path(name).read_text(encoding="utf-8"))["cases"] for name in ("checked.json", "run.json")
    )
    assert [(case["id"], case["checks"][0]["findings"]) for case in checked] == [
        (case["id"], case["checks"][0]["findings"]) for case in run
    ]
    assert len(run) == 4
    assert {case["function"] for case in (*checked, *run)} == {"ops.py:ClippedReLU"}  # from here, not from the spec


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--seed", "3")], ids=["default", "seed"])
def test_check_draws_the_same_numbers_whether_it_saves_or_not_and_so_does_the_saved_spec(check, options) -> None:
    words = ("ops.py:ClippedReLU", "x:5", "clip=1.5", *options)
    check(*words, "--json", "0.json")
    check(*words, "--save", "one.yaml", "--json", "1.json")
    CliRunner().invoke(app, ["run", "one.yaml", "-j", "0", "--json", "2.json"])
    Path("one.yaml").rename("other.yaml")
    CliRunner().invoke(app, ["run", "other.yaml", "-j", "0", "--json", "3.json"])
    seen = [json.loads(Path(f"{number}.json").read_text(encoding="utf-8"))["cases"][0] for number in range(4)]
    findings = [case["checks"][0]["findings"] for case in seen]
    assert findings[0] and findings == [findings[0]] * 4


def test_a_spec_is_saved_once_and_never_over_another(check) -> None:
    assert check("ops.py:Scaled", "x:3", "init.size=3", "--save", "scaled.yaml").exit_code == 0
    assert check("ops.py:Scaled", "x:3", "init.size=3", "--save", "scaled.yaml").exit_code == 0
    before = Path("scaled.yaml").read_text(encoding="utf-8")
    ran = check("ops.py:Scaled", "x:2,3", "init.size=3", "--save", "scaled.yaml")
    assert (ran.exit_code, ran.stdout) == (2, "")
    why = "there is such a file, with other content; name another one, or remove it"
    assert ran.stderr == f"gradverify: --save scaled.yaml: {why}\n"
    assert Path("scaled.yaml").read_text(encoding="utf-8") == before


def test_nothing_is_saved_if_there_is_a_mistake(check) -> None:
    ran = check("ops.py:ClippedReLU", "x:5", "--save", "clipped.yaml")
    assert ran.exit_code == 2
    assert "`clip` is missing" in ran.stderr
    assert not Path("clipped.yaml").exists()
    ran = check("ops.py:Scaled", "x:3", "init.size=3", "--save", "clipped.txt")
    assert (ran.exit_code, ran.stderr) == (2, "gradverify: --save clipped.txt: specs end in .yaml or .yml\n")
