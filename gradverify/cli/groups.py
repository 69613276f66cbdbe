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


_ARGUMENTS = "Arguments"
_REST = "Options"


class GroupedCommand(TyperCommand):
    """A command whose help lists its arguments, then its options by heading, then options without a heading."""

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


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _group(parameter: Any) -> str:
    if _is_argument(parameter):
        return _ARGUMENTS
    return getattr(parameter, "rich_help_panel", None) or _REST
