"""Record which lines of the user's code run.

Python 3.12 and newer report each line once and all threads (`sys.monitoring`). Before, a trace function is set, unless
one is there already (a debugger, a coverage tool), or code calls very many Python functions: then no line is recorded.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from gradverify.exploration.exercised.user_code import IsUserFile

Line = tuple[str, int]  # file and line
_TOOLS = (3, 4)  # ids for `sys.monitoring` that Python reserves for no kind of tool
_NAME = "gradverify"
_MOST_CALLS = 50_000  # of Python functions: a trace function delays each by half a microsecond


class LineRecorder:
    """The lines that ran so far; mutable."""

    def __init__(self, is_user_file: IsUserFile) -> None:
        self.is_user_file = is_user_file
        self.lines: set[Line] = set()
        self.threads: set[int] = set()  # threads with a trace function; empty if there is none
        self.calls = 0  # of Python functions while there is a trace function
        self.ended = False

    def misses_thread(self) -> bool:
        """Return True if lines are recorded in other threads, but not in the current one."""
        return bool(self.threads) and threading.get_ident() not in self.threads

    def follow(self, frame: FrameType) -> None:
        """Record also the lines of the current thread, if it is another one that autograd runs a backward on.

        `frame` is a frame of user code in that thread. Lines before the one that it is at count as run.
        """
        if not self.misses_thread() or sys.gettrace() is not None:
            return
        self._trace()
        current: FrameType | None = frame
        while current is not None:
            code = current.f_code
            if self.is_user_file(code.co_filename):
                self.lines.update((code.co_filename, line) for line in range(code.co_firstlineno, current.f_lineno + 1))
                current.f_trace = self._on_line
            current = current.f_back

    def start(self) -> None:
        """Set a trace function unless there is one."""
        if sys.gettrace() is None:
            self._trace()

    def end(self) -> None:
        """Remove the trace function; those of other threads remove themselves."""
        self.ended = True
        if sys.gettrace() == self._on_call:
            sys.settrace(None)

    def _trace(self) -> None:
        self.threads.add(threading.get_ident())
        sys.settrace(self._on_call)

    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        self.calls += 1
        if self.ended or self.calls > _MOST_CALLS:
            self._give_up()
            return None
        return self._on_line if self.is_user_file(frame.f_code.co_filename) else None

    def _give_up(self) -> None:
        """Remove the trace function of this thread, and forget the lines if there may be more of them."""
        sys.settrace(None)
        if not self.ended:
            self.ended = True
            self.threads.clear()
            self.lines.clear()

    def _on_line(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
        if self.ended:
            return None
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line


@contextmanager
def recorded_lines(is_user_file: IsUserFile) -> Iterator[LineRecorder]:
    """Record the lines that run in this block."""
    recorder = LineRecorder(is_user_file)
    if sys.version_info >= (3, 12):
        with _monitored(recorder):
            yield recorder
        return
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.end()


if sys.version_info >= (3, 12):

    @contextmanager
    def _monitored(recorder: LineRecorder) -> Iterator[None]:
        """Record lines by events; none if both ids are taken."""
        events = sys.monitoring
        tool = next((number for number in _TOOLS if events.get_tool(number) is None), None)
        if tool is None:
            yield
            return
        codes: list[CodeType] = []

        def on_start(code: CodeType, _offset: int) -> Any:
            if recorder.is_user_file(code.co_filename):
                codes.append(code)
                events.set_local_events(tool, code, events.events.LINE)
            return events.DISABLE

        def on_line(code: CodeType, line: int) -> Any:
            recorder.lines.add((code.co_filename, line))
            return events.DISABLE

        events.use_tool_id(tool, _NAME)
        try:
            events.register_callback(tool, events.events.PY_START, on_start)
            events.register_callback(tool, events.events.LINE, on_line)
            events.restart_events()  # an earlier block disabled the places that it had seen
            events.set_events(tool, events.events.PY_START)
            yield
        finally:
            events.set_events(tool, events.events.NO_EVENTS)
            for code in codes:
                events.set_local_events(tool, code, events.events.NO_EVENTS)
            events.register_callback(tool, events.events.PY_START, None)
            events.register_callback(tool, events.events.LINE, None)
            events.free_tool_id(tool)
