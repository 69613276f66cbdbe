"""Cases for the tests of the runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradverify.case import Case, Normal, Target, TensorInput
from gradverify.paths import shown_path
from gradverify.result import CaseResult
from gradverify.run.options import Event, Outcome, RunOptions
from gradverify.run.session import run_cases
from gradverify.run.task import Engine

OPS = Path(__file__).parent / "ops"
SHOWN = shown_path(str(OPS))  # as printed in messages


def target(name: str, file: Path | str = OPS / "good.py") -> Target:
    path = Path(file) if Path(file).is_absolute() else OPS / file
    return Target(file=str(path), name=name, written=f"{path.name}:{name}")


def case(name: str, file: Path | str = "good.py", **changes: Any) -> Case:
    values: dict[str, Any] = {
        "id": f"spec/{name}/cpu-float64",
        "draw_key": f"spec/{name}",
        "spec": "spec.yaml",
        "line": 3,
        "target": target(name, file),
        "inputs": {"x": TensorInput(origin=Normal(), shape=(3,))},
        "checks": ("gradcheck",),
        "timeout": 20.0,
    }
    return Case(**(values | changes))


def run(cases: list[Case], engine: Engine, **options: Any) -> dict[str, CaseResult]:
    """Run cases and return their results by the middle part of their ids."""
    return {result.id.split("/")[1]: result for result in outcome(cases, engine, **options).report.cases}


def outcome(cases: list[Case], engine: Engine | None, events: list[Event] | None = None, **options: Any) -> Outcome:
    heard: list[Event] = [] if events is None else events
    return run_cases(cases, (), RunOptions(**options), heard.append, engine)
