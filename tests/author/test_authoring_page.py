"""The transcripts in docs/authoring.md are what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.lent import Commands

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "authoring.md").read_text(encoding="utf-8")
SECTIONS = {part.partition(":")[0].strip(): part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
OPS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)[0]

GELU = "function: torch.nn.functional:gelu\ninputs: {input: {shape: [3]}}\n"


def transcripts(section: str) -> list[tuple[str, str]]:
    """Return the commands in a section, and what is printed after each."""
    blocks = re.findall(r"```console\n\$ (.*?)\n(.*?)```", SECTIONS[section], re.DOTALL)
    return [(command, printed) for command, printed in blocks]


def without_numbers(text: str) -> list[str]:
    return [" ".join(re.sub(r"\d[\d.]*(e[-+]?\d+)?", "#", row).split()) for row in text.splitlines() if row.strip()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "printed"), [each for section in ("check", "init", "missing") for each in transcripts(section)]
)
def test_transcript_is_what_is_printed(commands: Commands, command: str, printed: str) -> None:
    (commands.folder / "ops.py").write_text(OPS, encoding="utf-8")
    (commands.folder / "specs").mkdir()
    (commands.folder / "specs" / "gelu.yaml").write_text(GELU, encoding="utf-8")
    program, *words = shlex.split(command)
    assert program == "gradverify"
    ran = commands(*words)
    assert without_numbers(ran.stdout + ran.stderr) == without_numbers(printed)
