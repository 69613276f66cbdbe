"""Follow a page of the docs as a reader would: write its files, run its commands, and compare what they print.

    python -m tests.following docs/get-started.md ...     # put what the commands print now into the pages

A block whose first line has `title="NAME"` is a file, written when the page reaches it. Each `$ ` line of a `console`
block is run in the same folder, and the lines after it are what it prints. All other blocks are ignored.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_STEP = re.compile(r"^\$ (?P<command>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
_PROGRAMS = {"gradverify": ["-m", "gradverify"], "pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "python": []}


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page."""

    command: str
    shown: str  # what the page says that it prints
    printed: str  # what it printed


def follow(text: str, folder: Path, run: Callable[[str, Path], str] | None = None) -> list[Step]:
    """Write the files of a page and run its commands in `folder`, in the order of the page.

    `run` is called with a command and the folder, and returns what it prints; by default the command is a process.
    """
    run = run or printed
    done = []
    for block in _BLOCK.finditer(text):
        if block["title"]:
            file = folder / block["title"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["text"], encoding="utf-8")
        elif block["language"] == "console":
            steps = list(_STEP.finditer(block["text"]))
            assert "".join(step[0] for step in steps) == block["text"], "a console block starts with a command"
            done += [Step(step["command"], step["shown"], run(step["command"], folder)) for step in steps]
    return done


def printed(command: str, folder: Path) -> str:
    """Return what a command prints at 80 columns, standard output first."""
    program, *words = shlex.split(command)
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {"PATH": "", "PYTHONPATH": paths, "PYTHONUTF8": "1", "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, *_PROGRAMS[program], *words], cwd=folder, env=env, capture_output=True, text=True
    )
    return ran.stdout + ran.stderr


def without_numbers(text: str) -> list[str]:
    """Digits, and the spaces that line them up, differ from one machine to the next; words do not."""
    return [" ".join(re.sub(r"\d[\d.]*(e[-+]?\d+)?", "#", line).split()) for line in text.splitlines() if line.strip()]


def refreshed(text: str) -> str:
    """Return the page with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        steps = iter(follow(text, Path(folder)))

    def block(match: re.Match[str]) -> str:
        if match["language"] != "console" or match["title"]:
            return match[0]
        shown = "".join(f"$ {(step := next(steps)).command}\n{step.printed}" for _ in _STEP.finditer(match["text"]))
        return f"```console\n{shown}```"

    return _BLOCK.sub(block, text)


def main(names: list[str]) -> str:
    """Put what the commands of pages print now into the pages; return what is wrong with the names, or ""."""
    pages = [Path(name) for name in names]
    missing = [str(page) for page in pages if not page.is_file()]
    if missing or not pages:
        problem = f"no such page: {', '.join(missing)}" if missing else "name a page"
        return f"{problem}; as in: python -m tests.following docs/get-started.md"
    for page in pages:
        page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
