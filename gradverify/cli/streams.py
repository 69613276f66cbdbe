"""Open standard streams that are closed when the process starts."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Connect closed standard streams to os.devnull. Otherwise the next file opened would get the output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
