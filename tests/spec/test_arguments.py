"""Specs from the words of a command line: the same cases as those of a file, and mistakes that name the word."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradverify.case import Case
from gradverify.spec.arguments import Words, read_arguments
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

TARGET = "ops.py:F"
ABOUT_FORMS = "(write NAME:SHAPE for a tensor, as x:2,3, or NAME=VALUE, as clip=1.5)"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ops.py").write_text("class F: ...\ndef plain(): ...\ndef _hidden(): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mistakes(*inputs: str, target: str = TARGET, reference: str | None = None) -> list[str]:
    reading = read_arguments(Words(target=target, inputs=inputs, reference=reference), None)
    assert bool(reading.specs) is not bool(reading.errors)
    return [str(error) for error in reading.errors]


def one_case(path: Path | None, *inputs: str, reference: str | None = None) -> Case:
    reading = read_arguments(Words(target=TARGET, inputs=inputs, reference=reference), path)
    assert reading.errors == ()
    (case,) = expand(reading.specs)
    return case


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("x:5", "x: {shape: [5]}"),
        ("x:2,3", "x: {shape: [2, 3]}"),
        ("x:2, 3", "x: {shape: [2, 3]}"),
        ("x:", "x: {shape: []}"),
        ("x=1.5", "x: 1.5"),
        ("x=1e-6", "x: 1e-6"),
        ("x=-1", "x: -1"),
        ("x=", "x:"),
        ("x=none", "x: none"),
        ("x='a: b'", "x: 'a: b'"),
        ("x=[1, 2]", "x: [1, 2]"),
        ("x={shape: [5], uniform: [-3, 3], avoid: [0]}", "x: {shape: [5], uniform: [-3, 3], avoid: [0]}"),
        ("x=[{shape: [2]}, {shape: [3]}]", "x: [{shape: [2]}, {shape: [3]}]"),
        ("x={dtype: float32}", "x: {dtype: float32}"),
    ],
)
def test_a_word_says_what_a_line_under_inputs_says(here: Path, word: str, written: str) -> None:
    (here / "spec.yaml").write_text(f"function: {TARGET}\ninputs:\n  {written}\nseed: 0\n", encoding="utf-8")
    (expected,) = expand(read_paths(["spec.yaml"]).specs)
    case = one_case(Path("spec.yaml"), word)
    assert case.inputs == expected.inputs
    assert (case.id, case.draw_key, case.target) == (expected.id, expected.draw_key, expected.target)


def test_a_spec_in_no_file_is_called_check() -> None:
    case = one_case(None, "x:3")
    assert (case.id, case.spec) == ("check/F/cpu-float64", "")


def test_paths_are_relative_to_the_working_directory(here: Path) -> None:
    case = one_case(Path("new/folder/spec.yaml"), "x:3", reference="ops.py:plain")
    assert case.target.file == str(here / "ops.py")
    assert case.reference is not None and case.reference.file == str(here / "ops.py")


def test_arguments_of_a_constructor() -> None:
    case = one_case(None, "x:3", "init.size=4")
    assert case.init == {"size": 4}
    assert list(case.inputs) == ["x"]


def test_every_mistake_is_named_with_its_word() -> None:
    assert mistakes("x:5", "x:a", "7=3", "foo", "clip=[1", "x=1", "y={shape: [2], unifrm: [0, 1]}") == [
        f"x:a: expected sizes with commas between them, found text 'a' {ABOUT_FORMS}",
        f"7=3: `7` is not the name of a parameter {ABOUT_FORMS}",
        f"foo: neither a tensor nor a value {ABOUT_FORMS}",
        "clip=[1: not valid YAML: did not find expected ',' or ']' (a bracket is not closed, or a comma is missing)",
        "x=1: `x` is given twice (first as x:5)",
        "y={shape: [2], unifrm: [0, 1]}: inputs.y.unifrm: unknown key (did you mean `uniform`?)",
    ]


def test_a_shape_too_large_for_memory_is_refused() -> None:
    (told,) = mistakes("x:1000000,1000000")
    assert told.startswith("x:1000000,1000000: inputs.x.shape: ")


def test_a_target_without_a_name_is_told_the_names() -> None:
    assert mistakes("x:3", target="ops.py") == [
        "ops.py: function: expected path.py:Name or package.module:Name, found text 'ops.py' "
        "(add a colon and one of: F, plain)"
    ]
    assert mistakes("x:3", target="opps.py:F") == [
        "opps.py:F: function: no such file `opps.py` (did you mean `ops.py`?)"
    ]


def test_a_module_without_a_name_is_told_the_names() -> None:
    assert mistakes("x:3", target="ops")[0].endswith("(add a colon and one of: F, plain)")
    assert mistakes("x:3", target="ops.F")[0].endswith("(did you mean `ops:F`?)")


def test_a_mistake_in_the_reference_names_the_reference() -> None:
    assert mistakes("x:3", reference="ref") == [
        "ref: reference: expected path.py:Name or package.module:Name, found text 'ref'"
    ]


def test_tolerances_are_those_of_the_spec() -> None:
    words = Words(target=TARGET, inputs=("x:3",), tolerances={"rtol": "1e-5", "atol": "0.5"})
    reading = read_arguments(words, None)
    (case,) = expand(reading.specs)
    assert {(each.rtol, each.atol) for each in case.tolerances.values()} == {(1e-5, 0.5)}


@pytest.mark.parametrize(
    ("text", "problem"), [("-1", "must not be negative, found -1"), ("much", "expected a number, found text 'much'")]
)
def test_a_mistake_in_a_tolerance_names_the_option(text: str, problem: str) -> None:
    reading = read_arguments(Words(target=TARGET, inputs=("x:3",), tolerances={"rtol": text}), None)
    assert [str(error) for error in reading.errors] == [f"--rtol {text}: rtol: {problem}"]
