"""Whether Triton kernels can be interpreted here. Importing triton to find out would switch its interpreter off."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def can_interpret() -> bool:
    """Return True if a version of Triton is installed whose interpreter gradverify prepares."""
    try:
        found = version("triton")
    except PackageNotFoundError:
        return False
    return tuple(int(part) for part in found.split(".")[:2]) >= (3, 7)
