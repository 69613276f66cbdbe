"""A folder with things that specs name, and short ways to read specs in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradverify.case import Case, Input
from gradverify.spec.expand import Overrides, expand
from gradverify.spec.read import Reading, read_paths

FUNCTION = "function: ops/relu.py:F\n"
TENSOR = FUNCTION + "inputs: {x: {shape: [2]}}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """The working directory of a test: specs are named relative to it."""

    path: Path

    def write(self, name: str, text: str | bytes) -> None:
        """Write a spec."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self, text: str | bytes, name: str = "s.yaml") -> Reading:
        """Write one spec and read it."""
        self.write(name, text)
        return read_paths([name])

    def errors(self, text: str | bytes) -> list[str]:
        """Return the mistakes of one spec, without the file's name."""
        return [str(error).removeprefix("s.yaml:") for error in self.read(text).errors]

    def cases(self, text: str, overrides: Overrides | None = None) -> tuple[Case, ...]:
        """Return the cases of one spec that has no mistake."""
        reading = self.read(text)
        assert not reading.errors, list(map(str, reading.errors))
        return expand(reading.specs, overrides)

    def input(self, text: str) -> Input:
        """Return the one input that is described like this."""
        (case,) = self.cases(f"{FUNCTION}inputs:\n  x: {text}\n")
        return case.inputs["x"]
