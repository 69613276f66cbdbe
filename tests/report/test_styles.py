"""Every colour of the report can be read on black and on white, in the palettes that common terminals have."""

from __future__ import annotations

import pytest
from rich.style import Style

from gradverify.report import lines

# As xterm, macOS Terminal, VS Code (light) and GNOME show the colours that a style may name.
SHADES = {
    "red": ("#cd0000", "#c91b00", "#cd3131", "#cc0000"),
    "green": ("#00cd00", "#00c200", "#00bc00", "#4e9a06"),
    "yellow": ("#cdcd00", "#c7c400", "#949800", "#c4a000"),
    "blue": ("#0000ee", "#0225c7", "#0451a5", "#3465a4"),
    "magenta": ("#cd00cd", "#c930c7", "#bc05bc", "#75507b"),
    "cyan": ("#00cdcd", "#00c5c7", "#0598bc", "#06989a"),
}
STYLES = (lines.GOOD, lines.BAD, lines.WARN, lines.DIM, lines.HEAD)
LEAST = 2.0  # a ratio of luminances; yellow has 1.7 on white, green 2.1


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, ground: str) -> float:
    one, other = sorted((luminance(colour), luminance(ground)))
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("ground", ["#000000", "#ffffff"])
def test_colours_can_be_read_on_black_and_on_white(ground: str) -> None:
    colours = [Style.parse(style).color for style in STYLES]
    names = {colour.name for colour in colours if colour is not None}
    assert names <= set(SHADES)
    assert all(contrast(shade, ground) > LEAST for name in names for shade in SHADES[name])


def test_yellow_cannot() -> None:
    assert min(contrast(shade, "#ffffff") for shade in SHADES["yellow"]) < LEAST
