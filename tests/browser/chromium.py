"""A headless Chromium, spoken to over two pipes: its DevTools protocol needs no port and no package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE = 60.0  # seconds for one answer; a cold start on a busy machine takes a while
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def find_chromium() -> str | None:
    """Return where the browser is, None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser; commands go out on one pipe, answers and events come in on the other."""

    def __init__(self, process: int, writing: int, reading: int) -> None:
        self._process = process
        self._writing, self._reading = writing, reading
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is kept in `events`."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def close(self) -> None:
        """End the browser, and everything it started."""
        for end in (self._writing, self._reading):
            os.close(end)
        with suppress(OSError):
            os.killpg(self._process, signal.SIGKILL)
        with suppress(OSError):
            os.waitpid(self._process, 0)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._reading, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Tab:
    """One page in a browser."""

    def __init__(self, browser: Browser, width: int = 1200, height: int = 900) -> None:
        self._browser = browser
        self._target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.ask("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.resize(width, height)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **params)

    def resize(self, width: int, height: int = 900) -> None:
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Let the system ask for a light or a dark page."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """Return the value of some JavaScript."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < deadline, f"never: {expression}"
            time.sleep(0.02)

    def point(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, text: str = "") -> None:
        """Press a key; `text` is what it types."""
        extra = {"text": text} if text else {}
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        code = codes.get(key, 0)
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **extra)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        self.ask("Input.insertText", text=text)

    def middle(self, selector: str) -> tuple[float, float]:
        """Return the middle of the first element that a selector finds, scrolled into view."""
        place = self.run(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found.scrollIntoView({block: 'center', behavior: 'instant'}); const area = found.getBoundingClientRect();"
            "return [area.left + area.width / 2, area.top + area.height / 2]; })()"
        )
        return place[0], place[1]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """Return what has happened in this page so far, of the kinds named."""
        self.run("0")  # whatever came before is in the pipe by now
        return [
            event["params"]
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    def complaints(self) -> list[str]:
        """Return every exception, console message and log entry of this page."""
        return [
            json.dumps(event)
            for event in self.events("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        ]

    def requests(self) -> list[str]:
        """Return the address of everything this page asked for."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def close(self) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)


@contextmanager
def chromium(program: str, profile: Path) -> Iterator[Browser]:
    """Run a browser until the block ends."""
    ours_out, theirs_in = _pipe()[::-1]
    ours_in, theirs_out = _pipe()
    flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    nowhere = os.open(os.devnull, os.O_RDWR)
    process = os.posix_spawn(
        program,
        [program, *flags],
        {**os.environ, "HOME": str(profile)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, nowhere, 1),
            (os.POSIX_SPAWN_DUP2, nowhere, 2),
            (os.POSIX_SPAWN_DUP2, theirs_in, 3),
            (os.POSIX_SPAWN_DUP2, theirs_out, 4),
        ],
        setpgroup=0,
    )
    for end in (nowhere, theirs_in, theirs_out):
        os.close(end)
    browser = Browser(process, ours_out, ours_in)
    try:
        yield browser
    finally:
        browser.close()


def _pipe() -> tuple[int, int]:
    """Return the reading and the writing end of a pipe, away from the numbers that the browser wants."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
