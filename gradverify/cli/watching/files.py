"""Notice saved files, in a thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradverify.cli.exits import UsageProblem
from gradverify.cli.watching.inbox import Ended, Happening, Saved
from gradverify.concern.project import is_native_source, is_settings

_SUFFIXES = frozenset((".py", ".yaml", ".yml", ".pt", ".pth", ".npy", ".npz"))
_IGNORED = frozenset(("__pycache__", "node_modules", "site-packages"))  # and names that begin with a dot
_STEP = 50  # milliseconds without another save that end a burst of saves
_LONGEST = 1000  # milliseconds after which a burst is reported although it goes on
_PAUSE = 250  # milliseconds between two looks at whether to end


_State = tuple[int, ...] | None  # number on the disk, size and time of the last save; None if there is no such file


@dataclass(slots=True, kw_only=True)
class _Watcher:
    """A thread that watches. The fields change."""

    ready: threading.Event  # set when saves are noticed, or when that failed
    stop: threading.Event  # set to end the thread
    failure: str = ""


def is_relevant(file: Path, roots: Sequence[Path]) -> bool:
    """True for specs, code, data, settings and folders below the roots, except hidden and installed ones."""
    root = next((root for root in roots if file.is_relative_to(root)), None)
    parts = file.relative_to(root).parts if root is not None else ()
    if any(part in _IGNORED or part.startswith(".") for part in parts):
        return False
    if not file.suffix and not file.is_file():  # a folder that is there or was, and stands for what is in it
        return True
    return file.suffix in _SUFFIXES or is_native_source(file) or is_settings(file)


def roots_to_watch(project: Path, specs: Sequence[Path]) -> tuple[Path, ...]:
    """Return the project's folder and those of specs outside of it."""
    places = [Path(os.path.realpath(spec)) for spec in specs]
    folders = [place if place.is_dir() else place.parent for place in places]
    return (project, *dict.fromkeys(folder for folder in folders if not folder.is_relative_to(project)))


@contextmanager
def watched(roots: Sequence[Path], put: Callable[[Happening], None]) -> Iterator[None]:
    """Report saves below these folders until the block ends. Raises UsageProblem if they cannot be watched."""
    watcher = _Watcher(ready=threading.Event(), stop=threading.Event())
    thread = threading.Thread(target=_watch, args=(roots, put, watcher), daemon=True)
    thread.start()
    try:
        watcher.ready.wait()
        if watcher.failure:
            raise UsageProblem(f"--watch: {watcher.failure}")
        yield
    finally:
        watcher.stop.set()
        thread.join()


def _watch(roots: Sequence[Path], put: Callable[[Happening], None], watcher: _Watcher) -> None:
    from watchfiles import watch

    states: dict[Path, _State] = {}
    try:
        batches = watch(
            *roots,
            watch_filter=lambda _change, path: is_relevant(Path(path), roots),
            debounce=_LONGEST,
            step=_STEP,
            stop_event=watcher.stop,
            rust_timeout=_PAUSE,
            yield_on_timeout=True,  # the first result also says that saves are noticed from here on
            raise_interrupt=False,
        )
        for batch in batches:
            watcher.ready.set()
            if files := _changed(frozenset(Path(path) for _, path in batch), states):
                put(Saved(files=files))
    except Exception as error:  # of the operating system, as a limit on watched folders
        watcher.failure = f"the files below {roots[0]} cannot be watched: {error}"
        if watcher.ready.is_set():
            put(Ended(why=watcher.failure))
    finally:
        watcher.ready.set()


def _changed(files: frozenset[Path], states: dict[Path, _State]) -> frozenset[Path]:
    """Return the files whose state differs from that of their last report, and remember it in `states`.

    The system may report one save in two bursts.
    """
    found = {file: _state(file) for file in files}
    changed = frozenset(file for file in files if file not in states or states[file] != found[file])
    states.update(found)
    return changed


def _state(file: Path) -> _State:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
