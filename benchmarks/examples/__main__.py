"""Put the pages of all checks, codes and causes together, with what their wrong examples print.

    python -m benchmarks.examples docs/checks.md

Each example runs in this process, and so does the mended one, which has to pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.examples.outputs import outputs
from gradverify.catalogue import write_document


def main() -> None:
    printed, wrong = outputs()
    if wrong:
        sys.exit("\n".join(wrong))
    write_document(Path(sys.argv[1]), printed)


if __name__ == "__main__":
    main()
