"""What runs on a node before gradverify is known to be there. It is sent by value, and imports the standard library."""

from __future__ import annotations

import importlib.metadata
import platform


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, torch and gradverify on the machine that runs this, "" for none."""
    found = {"python": platform.python_version()}
    for package in ("torch", "gradverify"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found
