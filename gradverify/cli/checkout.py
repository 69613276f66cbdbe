"""The repository that the current folder belongs to."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.report.ci.places import Checkout


def current_checkout() -> Checkout:
    """Return the place of the current folder in its repository; a folder outside of any is its own root."""
    here = Path.cwd()
    root = _workspace(here) or next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    inside = here.relative_to(root).as_posix()
    return Checkout(root=root.as_posix(), inside="" if inside == "." else inside)


def _workspace(here: Path) -> Path | None:
    """Return the checkout folder of a GitHub job, None if the current folder is not in it."""
    named = os.environ.get("GITHUB_WORKSPACE", "")
    root = Path(os.path.abspath(named)) if named else None  # noqa: PTH100 (links are kept, as in the current folder)
    return root if root and here.is_relative_to(root) else None
