"""Operations for the tests of a cluster: they end nodes, and tell where they run."""

import os
import signal
import time
from pathlib import Path


def slow(x, seconds=0.1):
    time.sleep(seconds / 10)  # forward is called some ten times
    return x.sin()


def kill_node(x):
    """End Ray's process of the node that this runs on."""
    os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
    time.sleep(20)


def kill_slot(x):
    """End the actor that this runs in: the parent of the server that started this worker."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    os.kill(int(status.partition("PPid:")[2].split()[0]), signal.SIGKILL)
    time.sleep(20)


def wrong(x, seconds=0.1):
    return x.detach() * x


def wrong_elsewhere(x):
    """Have a wrong gradient at inputs of 6 and more."""
    return x.where(x.detach() < 6, (2 * x).detach() + x)
