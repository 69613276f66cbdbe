"""docs/agents.md: both checks print what the page shows, for the code that the page shows before each."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.following import without_numbers
from tests.lent import Commands

PAGE = (Path(__file__).parent.parent / "docs" / "agents.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(0, 1), (1, 0)], ids=["wrong", "mended"])
def test_page_shows_the_screen(commands: Commands, number: int, code: int) -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number]
    (commands.folder / "ops.py").write_text(source, encoding="utf-8")
    command, _, expected = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)[number].partition("\n")
    ran = commands(*shlex.split(command.removeprefix("$ gradverify ")))
    assert ran.returncode == code, ran.stderr
    assert without_numbers(ran.stdout) == without_numbers(expected)
