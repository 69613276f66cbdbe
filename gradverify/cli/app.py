"""The command line as a whole: every command by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from gradverify import __version__
from gradverify.cli.check import check
from gradverify.cli.exits import ExitCode, guarded
from gradverify.cli.explain import explain
from gradverify.cli.explore import explore
from gradverify.cli.groups import CommandWithWords, GroupedCommand
from gradverify.cli.init import init
from gradverify.cli.inspect import inspect
from gradverify.cli.list import list_cases
from gradverify.cli.merge import merge
from gradverify.cli.parameters import with_single_options
from gradverify.cli.record import record
from gradverify.cli.run import run
from gradverify.cli.schema import schema
from gradverify.cli.terminal import say

COMMANDS: tuple[tuple[str, Callable[..., int]], ...] = (
    ("run", run),
    ("check", check),
    ("init", init),
    ("explore", explore),
    ("record", record),
    ("inspect", inspect),
    ("list", list_cases),
    ("merge", merge),
    ("explain", explain),
    ("schema", schema),
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"gradverify {__version__}\n")
        raise typer.Exit(int(ExitCode.OK))


_VERSION = typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)


def build_app() -> typer.Typer:
    """Return the typer application."""
    # plain help: it is there in a tenth of a second, and an error is one line
    built = typer.Typer(
        name="gradverify",
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    built.callback()(_main)
    for name, command in COMMANDS:
        kind = CommandWithWords if command is record else GroupedCommand
        built.command(name, cls=kind)(guarded(with_single_options(command)))
    return built


def _main(version: Annotated[bool, _VERSION] = False) -> None:
    """Verify hand-written PyTorch gradients element by element, and name what is wrong."""


app = build_app()
