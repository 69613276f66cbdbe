"""The house keeps its layers: nothing imports upwards, and the light process never imports torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gradverify"

# Each room and the rooms it may import from; everything may import the ground floor.
GROUND = {"errors", "result", "case", "serial", "catalogue", "problem", "paths", "size", "usage", "formula", "deadline"}
MAY_IMPORT = {
    "errors": set(),
    "catalogue": set(),
    "serial": {"errors"},
    "paths": {"case"},
    "size": set(),
    "formula": {"errors"},
    "usage": set(),
    "result": {"serial", "errors", "usage"},
    "case": {"result", "errors", "usage"},
    "deadline": {"result"},
    "problem": {"result"},
    "interception": set(),
    "arithmetic": set(),
    "nested": set(),
    "core": GROUND | {"interception", "arithmetic", "nested"},
    "evidence": GROUND | {"core"},
    "sampling": GROUND | {"core"},
    "checks": GROUND | {"interception", "arithmetic", "nested", "evidence", "core"},
    "diagnosis": GROUND | {"evidence", "core"},
    "exploration": GROUND | {"evidence", "core", "sampling", "checks"},
    "spec": GROUND,
    "baseline": GROUND | {"spec"},
    "concern": GROUND | {"spec"},
    "run": GROUND
    | {"interception", "nested", "evidence", "core", "sampling", "checks", "diagnosis", "exploration", "spec"},
    "report": GROUND | {"spec"},
    "author": GROUND | {"core", "checks", "spec", "run"},
    "api": GROUND | {"evidence", "run", "report", "author", "core", "checks", "exploration"},
    "cli": GROUND | {"run", "report", "spec", "baseline", "concern", "author", "api"},
    "testing": GROUND | {"run", "report", "spec", "author"},
}
# Rooms within a room: each may import from itself and from those before it.
WITHIN = {
    "core": (
        "tuning",
        "model",
        "forward",
        "backward",
        "estimate",
        "decide",
        "strategy",
        "jacobians",
    ),
    "diagnosis": ("tuning", "naming", "block", "projections", "causes", "diagnose"),
}
LIGHT = {*GROUND, "spec", "baseline", "concern", "report", "cli", "testing"}
OBSERVER = PACKAGE / "author" / "recording" / "startup"  # runs inside other people's commands
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.name.startswith("__"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_imports_upwards(path: Path) -> None:
    room = room_of(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "gradverify" and len(parts) > 1 and parts[1] != room:
            assert parts[1] in MAY_IMPORT[room], f"{room} may not import {name}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if room_of(path) in WITHIN], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_rooms_within_a_room_have_one_way_through(path: Path) -> None:
    room, own, *_ = (part.removesuffix(".py") for part in path.relative_to(PACKAGE).parts)
    ways = WITHIN[room]
    order = ways.index(own) if own != "__init__" else -1
    for name in imports(path):
        if name.startswith(f"gradverify.{room}."):
            assert ways.index(name.split(".")[2]) <= order, f"{room}/{own} may not import {name}"


def is_light(path: Path) -> bool:
    return room_of(path) in LIGHT and OBSERVER not in path.parents


@pytest.mark.parametrize("path", list(filter(is_light, FILES)), ids=lambda path: path.name)
def test_light_rooms_never_import_torch(path: Path) -> None:
    assert not [name for name in imports(path) if name.split(".")[0] in {"torch", "numpy"}]


@pytest.mark.parametrize("path", sorted(OBSERVER.rglob("*.py")), ids=lambda path: path.name)
def test_observer_imports_nothing_of_gradverify(path: Path) -> None:
    own = {"gradverify_observer", "torch", "sitecustomize", "__future__"}
    assert {name.split(".")[0] for name in imports(path)} <= own | sys.stdlib_module_names
