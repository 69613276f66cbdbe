"""The pictures in docs/pictures are those that `make pictures` makes now."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks.pictures.ladders import PICTURES
from benchmarks.pictures.screen import terminal

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_NEAR = 0.5  # pixels: other processors round the samples otherwise


@pytest.mark.slow
@pytest.mark.parametrize(("name", "picture"), [("terminal.svg", terminal), *PICTURES.items()])
def test_picture_is_what_is_made_now(name: str, picture: Callable[[], str]) -> None:
    kept, made = (FOLDER / name).read_text(encoding="utf-8"), picture()
    if kept == made:
        return
    assert without_style(NUMBER.sub("#", kept)) == without_style(NUMBER.sub("#", made))
    pairs = list(zip(NUMBER.findall(kept), NUMBER.findall(made), strict=True))
    near = sum(abs(float(one) - float(other)) <= _NEAR for one, other in pairs)
    assert near >= 0.95 * len(pairs)


def without_style(svg: str) -> str:
    """Drop the version of matplotlib."""
    return re.sub(r"<dc:title>.*?</dc:title>", "", svg)
