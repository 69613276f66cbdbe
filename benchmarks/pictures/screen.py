"""What a user sees of a wrong gradient: the terminal as SVG, and the heat maps of the HTML page as PNG."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.browser.chromium import Tab, chromium, find_chromium

ROOT = Path(__file__).parent.parent.parent
COMMAND = "gradverify check ops.py:ClippedReLU x:5 clip=1.5"
_SECONDS = re.compile(r"\d+\.\d+ s(?=\x1b|$)")  # each run takes others
_SHOWN_SECONDS = ("0.31 s", "5.08 s")  # of the case, and of the run
_SOFTMAX = """import torch


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (y * grad).mean(-1, keepdim=True))  # the sum is meant
"""
_FIGURE = "figure.picture"


def terminal() -> str:
    """Return what the README's first example prints now, in a terminal of 80 columns; its command stands above."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code, *_) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "ops.py").write_text(code, encoding="utf-8")
        printed = _run(COMMAND, Path(folder))
    seconds = iter(_SHOWN_SECONDS)
    printed = "\n".join(_SECONDS.sub(lambda _: next(seconds), line) for line in printed.splitlines())
    console = Console(record=True, width=80, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(Text.from_ansi(printed.rstrip("\n")), soft_wrap=True)
    svg = console.export_svg(title="gradverify", unique_id="terminal")
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # fetch nothing
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def heatmap(path: Path) -> None:
    """Write the heat maps of a softmax whose backward takes a mean for a sum; needs a Chromium."""
    program = find_chromium()
    if program is None:
        raise SystemExit("there is no Chromium here for the heat map: run .ci/browser, or leave it with --no-browser")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as profile:
        (Path(folder) / "ops.py").write_text(_SOFTMAX, encoding="utf-8")
        _run("gradverify check ops.py:Softmax x:4,6 --html page.html", Path(folder))
        with chromium(program, Path(profile)) as browser:
            tab = Tab(browser, width=1000, height=1400)
            tab.prefer("light")
            tab.open((Path(folder) / "page.html").as_uri())
            tab.run("document.querySelectorAll('details').forEach(part => { part.open = true; })")
            tab.wait(f"document.querySelector('{_FIGURE} svg.error')")
            tab.run(f"document.body.replaceChildren(document.querySelector('{_FIGURE}'))")
            tab.run("document.querySelector('.readout').remove()")  # how to use it with a mouse
            tab.run("document.querySelector('.panels').style = 'display: flex; flex-wrap: nowrap'")
            tab.run("document.body.style = 'padding: 12px; max-width: none'")
            height = tab.run(f"document.querySelector('{_FIGURE}').getBoundingClientRect().bottom")
            tab.resize(1000, int(height) + 12)
            tab.screenshot(path)


def _run(command: str, folder: Path) -> str:
    env = {"PATH": "", "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "80"}
    env |= {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    ran = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)], cwd=folder, env=env, capture_output=True, text=True
    )
    if ran.returncode != 1 or not ran.stdout:
        raise SystemExit(f"{command} should find a wrong gradient:\n{ran.stdout}{ran.stderr}")
    return ran.stdout
