"""An example of a page as a module and a spec that run.

The pages show two or three lines: `x` and `y` stand for tensors that forward saved, and what both examples share is
left out. Here these lines become a Function that saves its tensors, with what examples.yaml adds. Where a page shows
keys of the spec, examples.yaml has the whole Function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gradverify.catalogue import Section

_TABLE = Path(__file__).with_name("examples.yaml")
_WRONG = re.compile(r"^Wrong\b[^\n]*:\n\n(?P<code>(?: {4}[^\n]*\n|\n)+)", re.MULTILINE)
_MENDED = re.compile(r"^Mended\b[^\n]*:\n\n(?P<code>(?: {4}[^\n]*(?:\n|\Z)|\n)+)", re.MULTILINE)
_METHODS = ("forward", "setup_context", "backward", "jvp", "vmap")
_FILE = "{file}"  # in a value of a spec: the module of the example
_HEAD = "import random\n\nimport torch\nfrom torch.autograd.function import once_differentiable\n"
_STATIC = ast.Name("staticmethod", ast.Load())


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What a page leaves out of its example."""

    inputs: Mapping[str, Any] = field(default_factory=dict)  # as in a spec
    checks: Sequence[str] = ("gradcheck",)
    forward: str = ""  # used by an example that has none of its own
    backward: str = ""  # the same
    saved: bool = True  # False if forward saves what backward needs by itself
    first: str = ""  # first statements of backward, such as the output computed again
    module: str = ""  # statements before the class
    name: str = "Example"  # of the class
    spec: Mapping[str, Any] = field(default_factory=dict)  # more keys of the spec
    keys: bool = False  # True if the page shows keys of the spec, and no code
    mended: bool = True  # False if the mended example cannot run by itself
    worker: bool = False  # True if the wrong example ends its process, or never ends


def examples() -> dict[str, Example]:
    """Return the examples by code or cause, in the order of examples.yaml."""
    table = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return {name: Example(**keys) for name, keys in table.items()}


def wrong_code(section: Section) -> str:
    """Return the first wrong example of a page; "" if it is in words."""
    return _code(_WRONG, section)


def mended_code(section: Section) -> str:
    """Return the first mended example of a page; "" if it is in words."""
    return _code(_MENDED, section)


def source_of(example: Example, code: str, wrong: str = "") -> str:
    """Return the module of an example: the Function, if it has one, below what the page shows besides.

    A mended one takes the functions that it does not show from `wrong`.
    """
    code, wrong = ("", "") if example.keys else (code, wrong)
    given = _functions(example.forward + "\n" + example.backward) | _functions(wrong) | _functions(code)
    inside = {name: made for name, made in given.items() if name in _METHODS}
    outside = [made for name, made in given.items() if name not in inside]
    statements = [node for node in ast.parse(code).body if not isinstance(node, ast.FunctionDef)]
    module = [*ast.parse(example.module).body, *statements, *outside]
    if inside:
        module.append(_class(inside, example))
    body = ast.Module(body=module, type_ignores=[])
    return f"{_HEAD}\n{ast.unparse(ast.fix_missing_locations(body))}\n"


def spec_of(example: Example, file: str, code: str) -> str:
    """Return the spec that runs the example in `file`, with the keys of the spec that the page shows in `code`."""
    more = {
        name: value.replace(_FILE, file) if isinstance(value, str) else value for name, value in example.spec.items()
    }
    keys = {
        "function": f"{file}:{example.name}",
        "inputs": dict(example.inputs),
        "checks": list(example.checks),
        **more,
        **(yaml.safe_load(code) if example.keys else {}),
    }
    return yaml.safe_dump(keys, sort_keys=False)


def _code(pattern: re.Pattern[str], section: Section) -> str:
    found = pattern.search(section.text + "\n")
    return "" if found is None else "\n".join(row[4:] for row in found["code"].splitlines()).strip() + "\n"


def _functions(code: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of some code by name; of several with one name, the first."""
    found = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in reversed(found)}


def _class(functions: Mapping[str, ast.FunctionDef], example: Example) -> ast.ClassDef:
    """Return the Function with these static methods."""
    if example.saved:
        _save(functions, example)
    base = ast.parse("torch.autograd.Function", mode="eval").body
    members: list[ast.stmt] = [_static(made) for made in functions.values()]
    return ast.ClassDef(name=example.name, bases=[base], keywords=[], body=members, decorator_list=[])


def _save(functions: Mapping[str, ast.FunctionDef], example: Example) -> None:
    """Let forward save its tensors, and backward and jvp read them under the names of forward's parameters."""
    forward = functions["forward"]
    names = ", ".join(name for name, value in example.inputs.items() if isinstance(value, dict))
    forward.body[:0] = ast.parse(f"ctx.save_for_backward({names})\nctx.save_for_forward({names})").body
    for name in ("backward", "jvp"):
        if name in functions:
            functions[name].body[:0] = ast.parse(f"{names}, = ctx.saved_tensors\n{example.first}").body


def _static(function: ast.FunctionDef) -> ast.FunctionDef:
    return ast.FunctionDef(**{**dict(ast.iter_fields(function)), "decorator_list": [_STATIC, *function.decorator_list]})
