"""Memory for large inputs is bounded, and the C library keeps freed memory for later tensors."""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys

import pytest
import torch

from gradverify.result import Verdict
from tests.core.support import gradcheck, normal

_FIVE_TENSORS_AT_ONCE = """
import ctypes, json, sys
import torch
from gradverify.core.model.limits import keep_freed_memory

NAMES = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]

count = ctypes.CDLL(None).mallinfo2
count.restype = Mallinfo2

if sys.argv[1] == "kept":
    keep_freed_memory()
mapped = given_back = 0
for _ in range(8):
    before = count()
    tensors = [torch.zeros(1_000_000, dtype=torch.float64) for _ in range(5)]  # 40 MB
    held = count()
    del tensors
    mapped += held.hblks - before.hblks
    given_back += held.arena - count().arena
print(json.dumps([mapped, given_back]))
"""


def test_memory_for_a_million_elements_is_bounded() -> None:
    x = normal(1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert gradcheck(torch.sin, x).verdict is Verdict.PASS
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown <= 80 * x.numel() * x.element_size()


def _has_mallinfo2() -> bool:
    """Return True if the C library has mallinfo2: glibc from 2.33 on (mallinfo(3))."""
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 33)


@pytest.mark.slow
@pytest.mark.skipif(not _has_mallinfo2(), reason="only glibc learns from what is freed, and tells of it from 2.33 on")
def test_freed_memory_is_kept() -> None:
    """Allocating and freeing 40 MB eight times maps no tensor separately and returns nothing to the system."""
    assert _mapped_and_given_back("kept") == (0, 0)


@pytest.mark.slow
@pytest.mark.skipif(not _has_mallinfo2(), reason="only glibc learns from what is freed, and tells of it from 2.33 on")
def test_by_default_every_large_tensor_is_mapped() -> None:
    """Shows that the test above can fail: by default, at least the first five tensors are mapped."""
    mapped, _ = _mapped_and_given_back("not kept")
    assert mapped >= 5


def _mapped_and_given_back(what: str) -> tuple[int, int]:
    """Return the number of separately mapped tensors and the number of heap bytes returned to the system."""
    run = subprocess.run(
        [sys.executable, "-c", _FIVE_TENSORS_AT_ONCE, what], capture_output=True, text=True, check=True, timeout=120
    )
    mapped, given_back = json.loads(run.stdout)
    return mapped, given_back
