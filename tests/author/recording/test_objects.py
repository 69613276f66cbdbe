"""Objects among the arguments that a spec can make again: dataclasses, members of enumerations, modules."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from gradverify.author.recording.notes import SeenArgument, SeenOther, SeenPlain, read_notes
from gradverify.author.recording.observing import observed

HERE = __name__


class Kind(enum.Enum):
    SOFT = "soft"


@dataclass(frozen=True)
class Settings:
    slope: float
    name: str = "leaky"


@dataclass(frozen=True)
class Nested:
    inner: Settings


class Wide(torch.nn.Module):
    """Keeps another number than it was given."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.double = 2 * size


class Weights:
    def __init__(self, slope: float) -> None:
        self.slope = slope


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, thing: Any) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def noted(thing: Any, folder: Path) -> SeenArgument:
    with observed(folder, keeps_values=False):
        Kept.apply(torch.ones(2, requires_grad=True), thing)
    (signature,) = read_notes(folder).signatures
    return signature.arguments["thing"]


@pytest.mark.parametrize(
    ("thing", "written"),
    [
        (Settings(slope=0.1), {"factory": f"{HERE}:Settings", "args": {"slope": 0.1, "name": "leaky"}}),
        (Kind.SOFT, {"factory": f"{HERE}:Kind", "args": {"value": "soft"}}),
        (
            torch.nn.Linear(3, 2, bias=False),
            {
                "factory": "torch.nn.modules.linear:Linear",
                "args": {"in_features": 3, "out_features": 2, "bias": None},
            },
        ),
        (
            torch.nn.GELU(approximate="tanh"),
            {"factory": "torch.nn.modules.activation:GELU", "args": {"approximate": "tanh"}},
        ),
        (torch.nn.Tanh(), {"factory": "torch.nn.modules.activation:Tanh"}),
    ],
)
def test_an_object_is_written_as_the_call_that_makes_it(thing: Any, written: Any, tmp_path: Path) -> None:
    assert noted(thing, tmp_path) == SeenPlain(value=written)


@pytest.mark.parametrize(
    "thing",
    [Nested(inner=Settings(slope=0.1)), Wide(3), torch.nn.Sequential(torch.nn.Tanh()), Weights(0.1), lambda: None],
    ids=lambda thing: type(thing).__name__,
)
def test_an_object_whose_arguments_cannot_be_told_has_no_word(thing: Any, tmp_path: Path) -> None:
    assert isinstance(noted(thing, tmp_path), SeenOther)
