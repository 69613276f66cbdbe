"""Put the pages of all checks, codes and causes together, with what their wrong examples print.

    python -m benchmarks.examples docs/checks.md

Everything from the first heading of the page on is replaced. Each wrong example is run and has to show its code or
cause, and each mended one has to pass. Otherwise the page stays as it is, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.examples.outputs import outputs
from gradverify.catalogue import write_document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, metavar="PAGE", help="the page to write; its introduction is kept")
    page = parser.parse_args().page
    if not page.is_file():
        parser.error(f"no such page: {page}")
    printed, wrong = outputs()
    if wrong:
        sys.exit("\n".join(wrong))
    write_document(page, printed)


if __name__ == "__main__":
    main()
