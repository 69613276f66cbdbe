"""Inputs inferred for a function of a file."""

from __future__ import annotations

from pathlib import Path

from gradverify.author.inferring.infer import infer
from gradverify.author.inferring.model import Inferred, Question
from gradverify.case import Target


def inferred(module: Path, name: str) -> Inferred:
    return infer(Question(target=Target(file=str(module), name=name, written=f"{module}:{name}"), draw_key=name))


def shapes(found: Inferred) -> list[list[int]]:
    """Return the shapes of the inputs in numbers."""
    assert not found.reason
    tensors = [value for value in found.inputs.values() if isinstance(value, dict) and "shape" in value]
    return [[found.dims.get(size, size) for size in value["shape"]] for value in tensors]
