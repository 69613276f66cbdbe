"""`--few` leaves two variants of each test, and every test."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = """
import pytest

@pytest.mark.parametrize("size", [pytest.param(k, marks=pytest.mark.slow if k in (0, 10) else ()) for k in range(11)])
def test_many(size):
    assert size in (1, 9)

@pytest.mark.parametrize("size", range(2))
def test_two(size):
    pass

def test_one():
    pass
"""


@pytest.mark.parametrize(("options", "counts"), [(["--few"], {"passed": 5, "deselected": 9}), ([], {"failed": 7})])
def test_two_variants_are_left(pytester: pytest.Pytester, options: list[str], counts: dict[str, int]) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers = slow")
    pytester.makepyfile(_TESTS)
    found = pytester.runpytest_inprocess("-m", "not slow", *options).parseoutcomes()
    assert {name: found[name] for name in counts} == counts
