"""Help fits a narrow terminal, and every option of `run` has a heading."""

from __future__ import annotations

import pytest

from gradverify.cli.app import COMMANDS


@pytest.mark.parametrize("command", [name for name, _ in COMMANDS])
def test_help_fits_80_columns(call, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = call(command, "--help").stdout
    assert all(len(row) <= 80 for row in shown.splitlines())


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
    ]
    assert [row.split()[:2] for row in shown.partition("\nOptions:\n")[2].splitlines()] == [["-h,", "--help"]]
