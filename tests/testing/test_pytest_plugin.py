"""`pytest --gradverify`: every case is a test, with all that pytest does with tests."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from tests.testing.conftest import Lent

pytestmark = pytest.mark.slow

Project = Callable[..., None]

MANY = """
function: ops.py:Right
inputs: {x: {shape: [3], uniform: [1, 2]}}
checks: [gradcheck]
cases:
  plain: {}
  elsewhere: {devices: [xpu]}
  on-purpose: {function: "ops.py:Wrong", expect: {gradcheck: fail, cause: constant-factor}}
  "odd[1-a]::b": {samples: 2}
"""


def test_every_case_is_a_test(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(many=MANY)
    result = pytester.runpytest("--gradverify", "specs", "-v", "-rs")
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "specs/many.yaml::many/plain/cpu-float64 PASSED*",
            "specs/many.yaml::many/elsewhere/xpu-float64 SKIPPED*",
            "specs/many.yaml::many/on-purpose/cpu-float64 PASSED*",
            "specs/many.yaml::many/odd[[]1-a]::b/cpu-float64-sample0 PASSED*",
            "specs/many.yaml::many/odd[[]1-a]::b/cpu-float64-sample1 PASSED*",
            "SKIPPED [[]1] specs/many.yaml:7: this machine has no xpu device that torch * can use",
        ]
    )
    assert lent.closed == 1


def test_a_failure_is_our_table(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(wrong="Wrong")
    result = pytester.runpytest("--gradverify", "specs", "--junitxml", "junit.xml")
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert "GV101  3 entries of d output / d x differ" in said
    assert "cause constant-factor: analytic = 1/2 × numeric" in said
    assert "reproduce: gradverify run specs/wrong.yaml -k 'wrong/Wrong/cpu-float64'" in said
    assert "Traceback" not in said and "bench.py" not in said
    result.stdout.fnmatch_lines(["FAILED specs/wrong.yaml::wrong/Wrong/cpu-float64 - fail: 3 entries of d*"])
    (failure,) = ElementTree.parse(pytester.path / "junit.xml").getroot().iter("failure")
    assert failure.attrib["message"].startswith("fail: 3 entries of d output / d x differ")
    assert "cause constant-factor" in (failure.text or "")


def test_a_mistake_in_a_spec_is_an_error_of_collection(pytester: pytest.Pytester, project: Project) -> None:
    project(mistaken="function: ops.py:Right\ninputz: {}\n", right="Right")
    result = pytester.runpytest("--gradverify", "specs")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["specs/mistaken.yaml:2:1: inputz: *did you mean*"])
    assert "Traceback" not in result.stdout.str()


def test_a_mistake_that_the_function_shows_fails_the_test(
    pytester: pytest.Pytester, project: Project, lent: Lent
) -> None:
    project(missing="Rigth")
    result = pytester.runpytest("--gradverify", "specs")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["specs/missing.yaml:2:11: function: *Rigth*Right*"])


@pytest.mark.slow
def test_a_crash_is_a_failure_and_the_next_test_runs(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(a="Crashes", b="Right")
    result = pytester.runpytest("--gradverify", "specs")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*GV905  *SIGSEGV*"])


def test_tests_are_chosen_as_any_others(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(a="Right", b="Wrong", c="Right")
    pytester.makepyfile(test_plain="def test_it(): pass")
    run = pytester.runpytest
    run("--gradverify", "-k", "Wrong").assert_outcomes(failed=1, deselected=3)
    run("--gradverify", "--lf").assert_outcomes(failed=1)
    run("--gradverify", "specs", "-x").assert_outcomes(failed=1, passed=1)
    run("--gradverify", "specs/c.yaml::c/Right/cpu-float64").assert_outcomes(passed=1)
    run("--gradverify", "-m", "not gradverify").assert_outcomes(passed=1, deselected=3)


def test_one_of_several_with_odd_names(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(many=MANY.replace("::b", ""))
    result = pytester.runpytest("--gradverify", "specs/many.yaml::many/odd[1-a]/cpu-float64-sample1")
    result.assert_outcomes(passed=1)


def test_which_files_are_specs(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(good="Right")
    (pytester.path / "compose.yaml").write_text("services: {}\n", encoding="utf-8")
    pytester.makeini("[pytest]\ngradverify_files = good*.yaml\n")
    pytester.runpytest("--gradverify").assert_outcomes(passed=1)
    pytester.runpytest("--gradverify", "compose.yaml").assert_outcomes(errors=1)  # named, so meant


@pytest.mark.slow
def test_side_by_side(pytester: pytest.Pytester, project: Project) -> None:
    project(a="Right", b="Wrong", c="Right")
    result = pytester.runpytest_subprocess("--gradverify", "specs", "-n", "2", "--junitxml", "junit.xml")
    result.assert_outcomes(passed=2, failed=1)
    assert "cause constant-factor" in result.stdout.str()
    result.stdout.fnmatch_lines(["FAILED specs/b.yaml::b/Wrong/cpu-float64 - fail: 3 entries of d*"])
    root = ElementTree.parse(pytester.path / "junit.xml").getroot()
    names = {found.attrib["name"] for found in root.iter("testcase")}
    assert names == {"a/Right/cpu-float64", "b/Wrong/cpu-float64", "c/Right/cpu-float64"}
    (failure,) = root.iter("failure")
    assert failure.attrib["message"].startswith("fail: 3 entries of d output / d x differ")
    assert "cause constant-factor" in (failure.text or "")


WATCH = """
import sys

def pytest_unconfigure(config):
    heavy = sorted({"torch", "numpy", "yaml", "jinja2"} & set(sys.modules))
    ours = sorted(name for name in sys.modules if name.startswith("gradverify"))
    print("LOADED", heavy, len(ours))
"""


@pytest.mark.slow
def test_in_process(pytester: pytest.Pytester, project: Project) -> None:
    project(a="Right")
    pytester.makeconftest(WATCH)
    result = pytester.runpytest_subprocess("--gradverify", "--gradverify-in-process", "specs")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["LOADED *'torch'*"])


def test_without_the_option_nothing_is_loaded(pytester: pytest.Pytester, project: Project) -> None:
    project(wrong="Wrong")
    pytester.makeconftest(WATCH)
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["LOADED [[][]] 3"])  # gradverify, its room, and the plugin itself


def test_collecting_loads_no_torch(pytester: pytest.Pytester, project: Project) -> None:
    project(many=MANY)
    pytester.makeconftest(WATCH)
    result = pytester.runpytest_subprocess("--gradverify", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["specs/many.yaml::many/plain/cpu-float64", "LOADED [[]'yaml'] *"])


AT_OTHER_INPUTS = """
function: ops.py:WrongTimes
inputs: {x: {shape: [3], uniform: [1, 2]}, factor: 1.0}
checks: [gradcheck]
explore: {budget: 12}
"""


def test_inputs_are_changed_where_it_is_asked_for(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(times=AT_OTHER_INPUTS, right="Right")
    pytester.runpytest("--gradverify", "specs/times.yaml").assert_outcomes(passed=1)
    result = pytester.runpytest("--gradverify", "--gradverify-explore", "specs", "--junitxml", "junit.xml")
    result.assert_outcomes(passed=1, failed=1)
    said = result.stdout.str()
    assert "✗ found at try 1 of 12: factor: " in said
    assert "GV101  " in said and "explore: ✗ fail  12 tries with other inputs, 2 failures" in said
    assert "reproduce: gradverify explore specs/times.yaml -k 'times/WrongTimes/cpu-float64'" in said
    (told,) = ElementTree.parse(pytester.path / "junit.xml").getroot().iter("failure")
    assert told.attrib["message"].startswith("fail: found at try 1 of 12: factor: ")


def test_the_budget_and_the_ini_option(pytester: pytest.Pytester, project: Project, lent: Lent) -> None:
    project(times=AT_OTHER_INPUTS)
    pytester.makeini("[pytest]\ngradverify_explore = true\n")
    result = pytester.runpytest("--gradverify", "--gradverify-budget=3", "specs")
    result.assert_outcomes(failed=1)
    assert "✗ found at try 1 of 3: factor: " in result.stdout.str()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gradverify-budget=3"], "*--gradverify-budget says how inputs are changed; give --gradverify-explore too"),
        *(
            (
                ["--gradverify-explore", f"--gradverify-budget={text}"],
                f"*--gradverify-budget: expected a whole number of tries above zero, found '{text}'",
            )
            for text in ("0", "x", "1.5")
        ),
    ],
)
def test_a_budget_that_cannot_be_meant(
    pytester: pytest.Pytester, project: Project, options: list[str], message: str
) -> None:
    project(times=AT_OTHER_INPUTS)
    result = pytester.runpytest("--gradverify", *options, "specs")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_inputs_are_only_changed_where_specs_are_collected(
    pytester: pytest.Pytester, project: Project, lent: Lent
) -> None:
    project(times=AT_OTHER_INPUTS)
    result = pytester.runpytest("--gradverify-explore", "specs")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gradverify-explore is about specs; give --gradverify too, which collects them"])
    pytester.makeini("[pytest]\ngradverify_explore = true\n")
    assert pytester.runpytest("specs").ret == pytest.ExitCode.NO_TESTS_COLLECTED
