"""Help fits a narrow terminal and ends with examples; shells can complete commands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest
import typer

from gradverify.cli.app import COMMANDS, app

NAMES = [command.name for command in COMMANDS]


@pytest.mark.parametrize("command", NAMES)
def test_help_fits_80_columns(call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = call(command, "--help").stdout
    assert all(len(row) <= 80 for row in shown.splitlines())


@pytest.mark.parametrize("command", NAMES)
def test_help_names_a_default_once(call, command: str) -> None:
    assert "] [default:" not in " ".join(call(command, "--help").stdout.split())


@pytest.mark.parametrize(
    ("command", "argument"),
    [("run", "PATH"), ("explore", "PATH"), ("inspect", "CASE"), ("merge", "REPORT"), ("explain", "CODE|CAUSE")],
)
def test_help_calls_an_argument_by_its_name_alone(call, command: str, argument: str) -> None:
    shown = call(command, "--help").stdout
    assert shown.partition("\nArguments:\n")[2].split("  ")[1] == argument
    assert "[[" not in shown
    assert "<" not in shown


def test_list_runs_nothing(call) -> None:
    shown = " ".join(call("list", "--help").stdout.split())
    assert "--keep-going List the cases of the other files when a spec has mistakes." in shown
    assert "How to run" not in shown


@pytest.mark.parametrize("command", ["run", "explore", "merge"])
def test_help_names_exclusive_options_and_exit_codes(call, command: str) -> None:
    shown = " ".join(call(command, "--help").stdout.split())
    assert "as expected; not with --write-baseline." in shown
    assert "what is fixed; not with --baseline." in shown
    assert "output could not be written" in shown


def test_options_of_run_are_in_groups(call) -> None:
    shown = call("run", "--help").stdout
    groups = [row[:-1] for row in shown.splitlines() if row.endswith(":") and not row.startswith(" ")]
    assert groups == [
        "Arguments",
        "Which cases",
        "What a case is, in place of what specs say",
        "How to run",
        "Other inputs than those in specs",
        "What is as expected",
        "Files",
        "On screen",
        "Options",
        "Examples",
    ]
    rest = shown.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert [row.split()[:2] for row in rest.splitlines()] == [["-h,", "--help"]]


@pytest.mark.parametrize("command", NAMES)
def test_help_ends_with_examples_that_the_command_takes(call, command: str) -> None:
    heading, *examples = call(command, "--help").stdout.rpartition("\n\n")[2].splitlines()
    assert heading == ("Example:" if len(examples) == 1 else "Examples:")
    parser: Any = typer.main.get_command(app)
    for example in examples:
        program, name, *words = shlex.split(example.partition(" > ")[0])
        assert (program, name) == ("gradverify", command)
        assert parser.commands[name].make_context(name, words).info_name == name


def test_an_example_with_an_unknown_option_would_be_refused() -> None:
    parser: Any = typer.main.get_command(app)
    with pytest.raises(Exception, match="No such option"):
        parser.commands["run"].make_context("run", ["specs/", "--never"])


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(shell: str) -> None:
    shown = completed({"_GRADVERIFY_COMPLETE": f"source_{shell}"})
    assert "gradverify" in shown and f"complete_{shell}" in shown


def test_bash_completes_commands() -> None:
    asked = {"_GRADVERIFY_COMPLETE": "complete_bash", "COMP_WORDS": "gradverify in", "COMP_CWORD": "1"}
    assert completed(asked).split() == ["init", "inspect"]


def completed(environment: dict[str, str]) -> str:
    """Return what the program prints when a shell asks it about completion."""
    program = [sys.executable, "-c", "from gradverify.__main__ import main; main()"]
    program[2] = "import sys; sys.argv[0] = 'gradverify'; " + program[2]
    found = subprocess.run(program, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return found.stdout
