"""What was found: modules, functions, and modules that could not be imported. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.case import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Python file to look into."""

    path: str  # absolute
    name: str | None  # dotted, where it is imported by name; None where it is imported by its path
    shown: str  # as messages name it


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The names of forward's parameters without a default, `ctx` left out."""

    names: tuple[str, ...]
    spread: str | None = None  # the name of *args


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A function with a gradient written by hand."""

    target: Target
    module: Module  # that defines it
    line: int  # in the module, 0 if unknown
    unread: str = ""  # why its module could not be imported; "" if it was
    parameters: Parameters | None = None  # as the text of its module has them, None if it has not


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of the dispatcher with an autograd formula."""

    qualified: str  # namespace::name
    attributes: tuple[str, ...] = ()  # of the module that was imported, through which it is reached
    defined_here: bool = False  # by `custom_op` or a Library of this module


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a worker found in one module."""

    functions: tuple[tuple[str, int], ...]  # attribute and line of each Function
    operators: tuple[Operator, ...]
    has_torch: bool  # as an attribute
    seconds: float  # that the import took


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Everything that was found in some packages and paths."""

    functions: tuple[Found, ...]  # by module, each once
    modules: int  # that were looked into
    unread: tuple[tuple[Module, str], ...] = ()  # modules that could not be imported, with the reason
    unparsed: tuple[Module, ...] = ()  # those of them whose text is no Python either: their functions are not known
    local: tuple[tuple[Module, int], ...] = ()  # modules with Functions in functions that no name leads to, how many
    seconds: tuple[tuple[str, float], ...] = ()  # that importing took, by the module's path


def target_in(module: Module, name: str) -> Target:
    """Return the target of a name in a module."""
    written = f"{module.shown}:{name}"
    if module.name is None:
        return Target(file=module.path, name=name, written=written)
    return Target(module=module.name, name=name, written=written)
