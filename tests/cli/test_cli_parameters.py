"""A dataclass parameter of a command stands for one option per field."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gradverify.cli.parameters import with_single_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    first: Annotated[int, typer.Option("--first")] = 1
    second: Annotated[int | None, typer.Option("--second", "-s")] = None


def command(name: Annotated[str, typer.Argument()] = "x", *, numbers: Numbers) -> tuple[str, Numbers]:
    """Do something."""
    return name, numbers


def test_fields_become_parameters_in_order() -> None:
    parameters = signature(with_single_options(command)).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "name": "x",
        "first": 1,
        "second": None,
    }


def test_values_go_into_the_class() -> None:
    called = with_single_options(command)
    assert called(name="y", second=3) == ("y", Numbers(first=1, second=3))
    assert called() == ("x", Numbers())
    with pytest.raises(TypeError):
        called(third=3)


def test_typer_reads_the_options() -> None:
    found = []

    def keeping(*, numbers: Numbers) -> None:
        found.append(numbers)

    keeping.__annotations__["numbers"] = Numbers
    app = typer.Typer()
    app.command()(with_single_options(keeping))
    assert CliRunner().invoke(app, ["-s", "4"]).exit_code == 0
    assert found == [Numbers(second=4)]
