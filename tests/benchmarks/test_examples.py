"""What a page shows and what examples.yaml adds become a module and a spec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.examples.outputs import outputs
from benchmarks.examples.source import Example, examples, mended_code, source_of, spec_of, wrong_code
from gradverify.catalogue import Section, sections

ROOT = Path(__file__).parent.parent.parent
PAGE = """Why it matters: it does.

Wrong, if forward is `x * w`:

    inputs: {x: {shape: [3]}}

Mended, by another shape:

    inputs: {x: {shape: [4]}}

Text below.
"""
SECTION = Section(name="GV900", title="a title", group="a group", text=PAGE)


def test_examples_of_a_page_may_say_what_they_are_about() -> None:
    assert wrong_code(SECTION) == "inputs: {x: {shape: [3]}}\n"
    assert mended_code(SECTION) == "inputs: {x: {shape: [4]}}\n"


def test_keys_that_a_page_shows_stand_in_the_spec_and_not_in_the_module() -> None:
    example = Example(forward="def forward(ctx, x): return 2 * x", saved=False, keys=True)
    assert yaml.safe_load(spec_of(example, "a.py", mended_code(SECTION))) == {
        "function": "a.py:Example",
        "inputs": {"x": {"shape": [4]}},
        "checks": ["gradcheck"],
    }
    assert "inputs" not in source_of(example, mended_code(SECTION), wrong_code(SECTION))


def test_statements_of_a_page_stand_above_the_function() -> None:
    example = Example(inputs={"x": {"shape": [3]}}, forward="def forward(ctx, x): return scale * x")
    source = source_of(example, "scale = 2")
    assert source.index("scale = 2") < source.index("class Example")
    assert "save_for_backward(x)" in source


def test_file_of_the_example_is_named_in_its_spec() -> None:
    example = Example(spec={"reference": "{file}:plain", "timeout": 3})
    spec = yaml.safe_load(spec_of(example, "a.py", ""))
    assert (spec["reference"], spec["timeout"]) == ("a.py:plain", 3)


def test_every_code_with_a_wrong_example_is_run() -> None:
    """GV707 needs a second device, and says so."""
    shown = {section.name for section in sections() if "\nWrong" in section.text}
    assert shown - set(examples()) == {"GV707"}


@pytest.mark.slow
def test_an_example_that_ends_its_process_is_run_in_another_one() -> None:
    names = ("GV904", "GV905")
    printed, amiss = outputs(names)
    assert not amiss
    assert all(f"{name}: " in printed[name] for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), ([], 2), (["missing.md"], 2)])
def test_command_says_how_it_is_called(words: list[str], status: int) -> None:
    command = [sys.executable, "-m", "benchmarks.examples", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    assert (ran.stdout + ran.stderr).startswith("usage: ")
    assert "Traceback" not in ran.stderr
