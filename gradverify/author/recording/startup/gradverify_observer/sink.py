"""Notes on their way to a folder: lines of JSON, one file per process."""

from __future__ import annotations

import _thread
import atexit
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from gradverify_observer.describe import tensors_in
from gradverify_observer.statistics import statistics
from gradverify_observer.subjects import Subject

FIRST = 20  # calls of one signature whose values are looked at; of later ones, those numbered by a power of two
MOST_SIGNATURES = 300  # of one subject; calls with others are counted
_FLUSH = 0.5  # seconds between the writing of counts
_LARGEST_KEPT = 2**20  # bytes of a tensor that is kept


class Sink:
    """The notes of one process for one folder.

    Files are opened for each write: a process that closes descriptors, or forks, writes to no other file.
    """

    def __init__(self, folder: str, keeps_values: bool) -> None:
        self._folder = folder
        self._keeps_values = keeps_values
        self._begin()
        atexit.register(self.flush)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._begin)
        self._flush_at_end_of_children()

    def _begin(self) -> None:
        """Begin a file of its own: at first, and in a forked process."""
        self._file = f"{self._folder}{os.sep}{os.getpid()}-{time.time_ns()}.jsonl"
        self._lock = _thread.RLock()
        self._signatures: dict[str, int] = {}  # their numbers in the file
        self._counts: dict[int, int] = {}  # calls by number of the signature
        self._unwritten: dict[int, int] = {}  # calls that the file does not have, by number
        self._subjects: dict[str, int] = {}  # signatures of each subject
        self._flushed = time.monotonic()
        self._failures = 0

    def add(self, subject: Subject, call: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        """Add a call: its arguments as plain values, and the arguments themselves."""
        home = json.dumps(subject.home)
        key = home + json.dumps(call)
        with self._lock:
            if key not in self._signatures and self._subjects.get(home, 0) >= MOST_SIGNATURES:
                key, call, given = home, {}, {}  # one signature for all the others
            number = self._signatures.setdefault(key, len(self._signatures))
            count = self._counts[number] = self._counts.get(number, 0) + 1
            if count == 1:
                places = [] if home in self._subjects else subject.places
                self._subjects[home] = self._subjects.get(home, 0) + 1
                head = {"signature": number, "subject": subject.home, "call": call, "other": key == home}
                self._write({**head, "places": places})
            is_looked_at = count <= FIRST or count & (count - 1) == 0
            if is_looked_at and given and not _is_capturing():
                self._write(self._seen(number, count, given))
            else:
                self._unwritten[number] = self._unwritten.get(number, 0) + 1
            if time.monotonic() - self._flushed > _FLUSH:
                self.flush()

    def take_back(self, subject: Subject, call: Mapping[str, Any]) -> None:
        """Take back one call that was added."""
        with self._lock:
            number = self._signatures.get(json.dumps(subject.home) + json.dumps(call))
            if number is not None:
                self._write({"of": number, "calls": -1})

    def add_failure(self, message: str) -> None:
        """Add that a call could not be noted."""
        try:
            self._failures += 1
            if self._failures <= FIRST:
                self._write({"failure": message})
        except Exception:
            pass  # the disk may be full

    def flush(self) -> None:
        """Write the counts that the file does not have."""
        try:
            with self._lock:
                for number, count in self._unwritten.items():
                    self._write({"of": number, "calls": count})
                self._unwritten.clear()
                self._flushed = time.monotonic()
        except Exception:
            pass

    def _seen(self, number: int, count: int, given: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, tensor in tensors_in(given):
            try:
                values[name] = statistics(tensor)
            except Exception:
                values[name] = None  # a subclass without such operations
        kept = self._kept(number, given) if self._keeps_values and count == 1 else {}
        return {"of": number, "calls": 1, "values": values, "kept": kept}

    def _kept(self, number: int, given: Mapping[str, Any]) -> dict[str, str]:
        """Save tensors of whole numbers and truth values; return the names of their files."""
        torch = sys.modules["torch"]
        kept: dict[str, str] = {}
        for name, tensor in tensors_in(given):
            size = tensor.numel() * tensor.element_size()
            if tensor.is_floating_point() or tensor.is_complex() or not 0 < size <= _LARGEST_KEPT:
                continue
            path = f"{self._file[: -len('.jsonl')]}-{number}-{len(kept)}.pt"
            with torch.no_grad():
                torch.save(tensor.detach().cpu().clone(), path)
            kept[name] = path
        return kept

    def _write(self, line: Mapping[str, Any]) -> None:
        with open(self._file, "a", encoding="utf-8") as file:  # noqa: PTH123 - as fast as can be
            file.write(json.dumps(line) + "\n")

    def _flush_at_end_of_children(self) -> None:
        """Let processes that multiprocessing forks write their counts, which end without atexit."""
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.register_after_fork(self, lambda sink: util.Finalize(None, sink.flush, exitpriority=0))


def _is_capturing() -> bool:
    """True while CUDA captures a graph, which to look at values would end."""
    cuda = sys.modules["torch"].cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())
