"""Make every picture in docs/pictures again.

    python -m benchmarks.pictures [--no-browser]

`terminal.svg` is what the README's command prints, but for its seconds, which differ from run to run. `heatmap.png` is
the page of a run, in a headless Chromium. The others are drawn from the engine's samples and estimates. The same
machine gives the same SVG bytes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.pictures.ladders import PICTURES
from benchmarks.pictures.screen import heatmap, terminal

FOLDER = Path(__file__).parent.parent.parent / "docs" / "pictures"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-browser", action="store_true", help="leave heatmap.png as it is")
    wanted = parser.parse_args()
    (FOLDER / "terminal.svg").write_text(terminal(), encoding="utf-8")
    for name, picture in PICTURES.items():
        (FOLDER / name).write_text(picture(), encoding="utf-8")
    if not wanted.no_browser:
        heatmap(FOLDER / "heatmap.png")


if __name__ == "__main__":
    main()
