"""Memory that a check has used is there for the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FIVE_TENSORS_AT_ONCE = """
import resource
import torch
from gradverify.core.function.room import keep_what_is_freed

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

{first}
for number in range(8):
    if number == 3:
        before = faults()
    tensors = [torch.zeros(1_000_000, dtype=torch.float64) for _ in range(5)]  # 40 MB
    del tensors
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc learns from what is freed")
def test_pages_are_asked_for_once() -> None:
    anew, kept = _faults("pass"), _faults("keep_what_is_freed()")
    assert kept < 1_000, "40 MB are 9,766 pages of 4 KiB"
    assert anew > 10 * kept, "otherwise there is nothing to be kept, and the call may go"


def _faults(first: str) -> int:
    program = _FIVE_TENSORS_AT_ONCE.format(first=first)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return int(run.stdout)
