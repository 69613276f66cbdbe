"""The command line as a whole: every command by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by name, with the lines that its help ends with."""

    name: str
    run: Callable[..., int]
    examples: tuple[str, ...]


COMMANDS: tuple[Command, ...] = (
    Command(
        name="run",
        run=run,
        examples=("gradverify run specs/", "gradverify run specs/ -k relu --html page.html"),
    ),
    Command(
        name="check",
        run=check,
        examples=(
            "gradverify check ops.py:ClippedReLU x:5 clip=1.5",
            "gradverify check ops.py:ClippedReLU x:5 clip=1.5 --save specs/relu.yaml",
        ),
    ),
    Command(name="init", run=init, examples=("gradverify init mypackage -o specs/",)),
    Command(name="explore", run=explore, examples=("gradverify explore specs/ --budget 100",)),
    Command(name="record", run=record, examples=("gradverify record -- pytest tests/",)),
    Command(name="inspect", run=inspect, examples=("gradverify inspect relu --heatmap",)),
    Command(
        name="list",
        run=list_cases,
        examples=("gradverify list specs/", "gradverify list --missing mypackage"),
    ),
    Command(name="merge", run=merge, examples=("gradverify merge shard-1.json shard-2.json --markdown summary.md",)),
    Command(name="explain", run=explain, examples=("gradverify explain missing-mask",)),
    Command(name="schema", run=schema, examples=("gradverify schema > gradverify.json",)),
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
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    built.callback()(_main)
    for command in COMMANDS:
        kind = CommandWithWords if command.run is record else GroupedCommand
        epilog = "\n".join(command.examples)
        built.command(command.name, cls=kind, epilog=epilog)(guarded(with_single_options(command.run)))
    return built


def _main(version: Annotated[bool, _VERSION] = False) -> None:
    """Verify hand-written PyTorch gradients element by element, and name what is wrong."""


app = build_app()
