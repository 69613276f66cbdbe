"""The messages between the light process and the worker server: records of fixed size."""

from __future__ import annotations

import struct

ORDER = struct.Struct("<qq")  # FORK, KILL or PREPARE; process id to kill
FORK, KILL, PREPARE = 1, 2, 3
NEWS = struct.Struct("<qqq")  # READY, FORKED or DIED; process id; status as returned by waitpid
READY, FORKED, DIED = 1, 2, 3
CHANNEL_CLOSED_EXIT = 113  # exit code of a worker whose socket was closed by user code
