"""Help that lists options under headings, in the order in which one needs them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from typer.core import TyperCommand


class Heading(StrEnum):
    """A heading in the help of a command, in the order of the help."""

    CASES = "Which cases"
    SETTINGS = "What a case is, in place of what specs say"
    RUNNING = "How to run"
    OTHER_INPUTS = "Other inputs than those in specs"
    EXPECTED = "What is as expected"
    FILES = "Files"
    SCREEN = "On screen"


# Flags that may have a value after a sign of equality, and the options that it is the value of.
_FLAGS_WITH_VALUE = {"--explore": "--budget"}
_ARGUMENTS = "Arguments"
_REST = "Options"


class GroupedCommand(TyperCommand):
    """A command whose help lists its arguments, its options by heading, options without a heading, and examples.

    `--explore=20` stands for `--explore --budget 20`. An option with a value that may be left out would take the
    argument after it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line."""
        own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        end = args.index("--") if "--" in args else len(args)
        words = [word for arg in args[:end] for word in _separated(arg, own)]
        return super().parse_args(ctx, [*words, *args[end:]])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of arguments and options."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (_ARGUMENTS, *Heading, _REST)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                name = (_is_argument(parameter) and parameter.metavar) or record[0]  # an argument's without its type
                groups[_group(parameter)].append((name, record[1]))
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, a line each and never wrapped, so that they can be copied."""
        del ctx
        if examples := (self.epilog or "").splitlines():
            with formatter.section("Example" if len(examples) == 1 else "Examples"):
                formatter.write("".join(f"  {example}\n" for example in examples))


class CommandWithWords(GroupedCommand):
    """A command whose arguments are the words of another one: options after the first word belong to that."""

    allow_interspersed_args = False


def _separated(arg: str, own: set[str]) -> list[str]:
    """Return a flag with a value as the flag and the option that has the value; any other word as it is."""
    flag, equals, value = arg.partition("=")
    return [flag, _FLAGS_WITH_VALUE[flag], value] if equals and flag in own & _FLAGS_WITH_VALUE.keys() else [arg]


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _group(parameter: Any) -> str:
    if _is_argument(parameter):
        return _ARGUMENTS
    return getattr(parameter, "rich_help_panel", None) or _REST
