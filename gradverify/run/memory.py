"""The memory that a case may take, and what is said where it wanted more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch

from gradverify.result import CaseResult, CheckResult, Finding, Verdict
from gradverify.run.describe_exception import describe
from gradverify.run.size import size_text

_CODE = "GV906"
_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "bad_alloc")
_DATA_AND_STACK = 5  # column of /proc/self/statm, in pages


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory ran out, on the host or on a device."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _says_so(describe(error))


@contextmanager
def limited(extra: int | None) -> Iterator[None]:
    """Let this process have `extra` bytes of writable memory more than it has now, until the block ends.

    Memory of a GPU, and what children take, is not counted. Only Linux counts all that a process takes.
    """
    if extra is None or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _taken() + extra
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # user code has lowered the hard limit, which shows in other ways
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def blaming_limit(result: CaseResult, allowed: int) -> CaseResult:
    """Name the limit in a result that says that memory ran out."""
    why = f"; a case may take {size_text(allowed)} (--memory)"
    checks = tuple(_blaming(check, why) for check in result.checks)
    message = f"{result.message}{why}" if result.message.startswith(_CODE) else result.message
    return replace(result, message=message, checks=checks)


def _blaming(check: CheckResult, why: str) -> CheckResult:
    findings = tuple(_named(finding, why) for finding in check.findings)
    if findings == check.findings:
        return check
    return replace(check, message=f"{check.message}{why}", findings=findings)


def _named(finding: Finding, why: str) -> Finding:
    if finding.code == _CODE or (finding.verdict is Verdict.ERROR and _says_so(finding.message)):
        return replace(finding, code=_CODE, message=f"{finding.message}{why}")
    return finding


def _says_so(text: str) -> bool:
    return any(words in text.lower() for words in _WORDS)


def _taken() -> int:
    import resource

    return int(Path("/proc/self/statm").read_text().split()[_DATA_AND_STACK]) * resource.getpagesize()
