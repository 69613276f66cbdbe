"""Standard streams for a process that was started without some of them."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Let those that are closed lead nowhere: the next file to be opened would take their place, and get our output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")  # noqa: SIM115
