"""What the light process and the worker server say to each other: fixed-size records."""

from __future__ import annotations

import struct

ORDER = struct.Struct("<qq")  # what, process
FORK, KILL = 1, 2
NEWS = struct.Struct("<qqq")  # what, process, status as waitpid gives it
READY, FORKED, DIED = 1, 2, 3
DEAF_EXIT = 113  # exit code of a worker whose channel user code has closed
