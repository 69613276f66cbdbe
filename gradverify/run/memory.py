"""Limit the memory of a case, and recognise results of cases that ran out of memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch

from gradverify.result import CaseResult, CheckResult, Finding, Verdict
from gradverify.run.describe_exception import describe
from gradverify.size import size_text

_CODE = "GV906"
_PHRASES = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "bad_alloc")
_DATA_AND_STACK = 5  # column of /proc/self/statm, in pages


def is_out_of_memory(error: BaseException) -> bool:
    """True if an exception means that host or device memory ran out."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and _mentions_memory(describe(error))


@contextmanager
def memory_limit(extra: int | None) -> Iterator[None]:
    """Limit this process to `extra` bytes of writable memory beyond its present use, until the block ends.

    GPU memory and child processes are not counted. Without effect on other systems than Linux, whose limits do not
    count all memory of a process.
    """
    if extra is None or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _memory_in_use() + extra
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # user code has lowered the hard limit, which `irreversible_state` detects
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def naming_limit(result: CaseResult, allowed: int) -> CaseResult:
    """Return the result with the limit in every message that says that memory ran out."""
    why = f"; a case may take {size_text(allowed)} (--memory)"
    checks = tuple(_with_limit(check, why) for check in result.checks)
    message = f"{result.message}{why}" if result.message.startswith(_CODE) else result.message
    return replace(result, message=message, checks=checks)


def _with_limit(check: CheckResult, why: str) -> CheckResult:
    findings = tuple(_finding_with_limit(finding, why) for finding in check.findings)
    if findings == check.findings:
        return check
    return replace(check, message=f"{check.message}{why}", findings=findings)


def _finding_with_limit(finding: Finding, why: str) -> Finding:
    if finding.code == _CODE or (finding.verdict is Verdict.ERROR and _mentions_memory(finding.message)):
        return replace(finding, code=_CODE, message=f"{finding.message}{why}")
    return finding


def _mentions_memory(text: str) -> bool:
    return any(words in text.lower() for words in _PHRASES)


def _memory_in_use() -> int:
    import resource

    return int(Path("/proc/self/statm").read_text().split()[_DATA_AND_STACK]) * resource.getpagesize()
