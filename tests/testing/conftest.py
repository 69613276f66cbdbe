"""A project with specs, and pytest to be run in it; all runs share one worker, since torch takes seconds to load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradverify.run.interrupts import Waiting
from gradverify.run.pool import LocalPool
from gradverify.run.task import Engine, EngineEvent, Task, TaskLost
from gradverify.testing import bench, collecting

# pytester forgets what was first imported in an inner run, and extension modules cannot be loaded twice
assert collecting

OPS = """
import ctypes
import torch


class Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad * x


class Wrong(Right):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x


class WrongTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Crashes(Right):
    @staticmethod
    def forward(ctx, x):
        return ctypes.string_at(0)
"""

SPEC = """
function: ops.py:{function}
inputs: {{x: {{shape: [3], uniform: [1, 2]}}}}
checks: [gradcheck]
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "lent" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("pytest"))  # else each pytest process would load torch in a worker


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    shared = LocalPool(1)
    yield shared
    shared.close()


@dataclass
class Lent:
    """An engine that lives on when it is closed."""

    engine: Engine
    closed: int = 0
    name: str = "local"

    def submit(self, task: Task) -> None:
        self.engine.submit(task)

    def next_event(self, waiting: Waiting) -> EngineEvent | None:
        return self.engine.next_event(waiting)

    def cancel(self) -> tuple[TaskLost, ...]:
        return self.engine.cancel()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def lent(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> Lent:
    made = Lent(pool)
    monkeypatch.setattr(bench, "open_engine", lambda options: made)
    return made


@pytest.fixture
def project(pytester: pytest.Pytester) -> Callable[..., None]:
    """Write a project: each argument is a spec's name and its text, or the name of the function it is about."""

    def write(**specs: str) -> None:
        folder = pytester.mkdir("specs")
        (folder / "ops.py").write_text(OPS, encoding="utf-8")
        for name, text in specs.items():
            whole = text if ":" in text else SPEC.format(function=text)
            (folder / f"{name}.yaml").write_text(whole, encoding="utf-8")

    return write
