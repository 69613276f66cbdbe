"""Sizes with units are read, and written so that reading gives the same size."""

from __future__ import annotations

import pytest

from gradverify.size import size_of, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("2k", 2048), ("512M", 512 << 20), ("1.5G", 3 << 29), ("2 GiB", 2 << 30), ("3TB", 3 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1G", "1e9", "1,5G", "2 G i B", "lots", "1P", "9" * 31, f"{'9' * 400}T"])
def test_invalid_sizes_are_none(text: str) -> None:
    assert size_of(text) is None


@pytest.mark.parametrize(("size", "text"), [(1000, "1000"), (1024, "1K"), (3 << 29, "1536M"), (2 << 40, "2T")])
def test_the_shortest_text(size: int, text: str) -> None:
    assert size_text(size) == text
    assert size_of(text) == size
