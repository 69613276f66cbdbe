"""Help that lists options in groups, in the order in which one asks for them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

_REST = "Options"
_GROUPS: dict[str, tuple[str, ...]] = {
    "Which cases": ("-k", "--last-failed", "--shard", "--keep-going"),
    "What a case is, in place of what specs say": (
        "--check",
        "--device",
        "--dtype",
        "--seed",
        "--samples",
        "--timeout",
        "--torch-gradcheck",
        "--max-evaluations",
    ),
    "How to run": ("--jobs", "--memory", "--fail-fast"),
    "What is as expected": ("--require-device", "--baseline", "--write-baseline"),
    "Files": ("--elements", "--json", "--html", "--junit", "--sarif", "--markdown"),
    "On screen": ("--durations", "--no-color", "--quiet", "--verbose"),
}
_GROUP_OF = {flag: group for group, flags in _GROUPS.items() for flag in flags}


class GroupedCommand(TyperCommand):
    """A command whose help lists its arguments, then its options by group, then those of no group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of arguments and options."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{name: [] for name in _GROUPS}, _REST: []}
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
        return "Arguments"
    return next((_GROUP_OF[flag] for flag in parameter.opts if flag in _GROUP_OF), _REST)
