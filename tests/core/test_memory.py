"""Memory for large inputs is bounded, and the C library keeps freed memory for later tensors."""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys

import pytest
import torch

from gradverify.core.backward.vjps import backward_of, jacobian
from gradverify.core.model.limits import keep_freed_memory
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import gradcheck, normal, problem_of

_FIVE_TENSORS_AT_ONCE = """
import ctypes, json, os
import torch
from gradverify.core.model.limits import keep_freed_memory

NAMES = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]

class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES]

count = ctypes.CDLL(None).mallinfo2
count.restype = Mallinfo2

def measure():
    mapped = given_back = 0
    for _ in range(8):
        before = count()
        tensors = [torch.zeros(1_000_000, dtype=torch.float64) for _ in range(5)]  # 40 MB
        held = count()
        del tensors
        mapped += held.hblks - before.hblks
        given_back += held.arena - count().arena
    print(json.dumps([mapped, given_back]), flush=True)

if os.fork() == 0:
    measure()
    os._exit(0)
os.wait()
keep_freed_memory()
measure()
"""


def test_memory_for_a_million_elements_is_bounded() -> None:
    x = normal(1_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert gradcheck(torch.sin, x).verdict is Verdict.PASS
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown <= 80 * x.numel() * x.element_size()


@pytest.mark.slow
def test_memory_for_many_outputs_of_few_inputs_is_bounded() -> None:
    """A block of 49 rows takes 16 MB, of which nothing but the rows stays: 6 MB in all."""
    weights = torch.linspace(0.5, 1.5, 2_000, dtype=torch.float64)
    keep_freed_memory()
    problem = problem_of(lambda x: x.sin()[:, None] * weights, normal(20))
    backward = backward_of(problem, record(problem), 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert jacobian(backward).shape == (40_000, 20)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 <= 400e6


def _has_mallinfo2() -> bool:
    """Return True if the C library has mallinfo2: glibc from 2.33 on (mallinfo(3))."""
    name, version = platform.libc_ver()
    return name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 33)


@pytest.mark.slow
@pytest.mark.skipif(not _has_mallinfo2(), reason="only glibc learns from what is freed, and tells of it from 2.33 on")
def test_freed_memory_is_kept() -> None:
    """Allocating and freeing 40 MB eight times maps no tensor separately and returns nothing to the system.

    By default at least the first five tensors are mapped, which shows that the test can fail.
    """
    run = subprocess.run(
        [sys.executable, "-c", _FIVE_TENSORS_AT_ONCE], capture_output=True, text=True, check=True, timeout=120
    )
    by_default, kept = map(json.loads, run.stdout.splitlines())  # tensors mapped, and bytes of the heap given back
    assert by_default[0] >= 5
    assert kept == [0, 0]
