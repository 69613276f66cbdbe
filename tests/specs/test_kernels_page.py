"""What docs/kernels.md shows is what happens: a kernel with a mistake, and without it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lent import Commands
from tests.specs.interpreted import can_interpret

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(language: str) -> list[str]:
    return [match["text"] for match in _BLOCK.finditer(PAGE) if match["language"] == language]


def words(text: str) -> list[str]:
    """Sorted lines without numbers and spacing: cases end in any order, and other machines round otherwise."""
    lines = (" ".join(re.sub(r"-?\d[\d.]*(e[-+]?\d+)?", "#", line).split()) for line in text.splitlines())
    return sorted(line for line in lines if line)


@pytest.mark.skipif(not can_interpret(), reason="triton 3.7 is not installed")
@pytest.mark.slow
def test_kernel_fails_as_shown_and_passes_when_mended(commands: Commands) -> None:
    kernel, plain, *_ = blocks("python")
    (spec,) = blocks("yaml")
    (commands.folder / "plain.py").write_text(plain, encoding="utf-8")
    (commands.folder / "rms_norm.yaml").write_text(spec, encoding="utf-8")
    mended = kernel.replace("axis=0) / BLOCK)", "axis=0) / columns)")
    assert mended != kernel
    for text, shown in zip((kernel, mended), blocks("console"), strict=True):
        (commands.folder / "rms_norm.py").write_text(text, encoding="utf-8")
        command, expected = shown.split("\n", 1)
        assert command == "$ gradverify run rms_norm.yaml"
        ran = commands("run", "rms_norm.yaml")
        assert words(ran.stdout) == words(expected), ran.stdout + ran.stderr
