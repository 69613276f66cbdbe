"""User code that needs something this machine lacks is skipped, with its reason."""

from __future__ import annotations

from unittest import SkipTest

import pytest

from gradverify.case import Expectation
from gradverify.errors import NotOnThisMachine, what_is_lacking
from gradverify.result import Verdict
from gradverify.run.run_case import run_case
from gradverify.run.task import Engine
from tests.run.making import case, run


@pytest.mark.slow
def test_module_that_raises_skip_test_skips_its_cases(engine: Engine) -> None:
    found = run([case("Anything", "lacking_module.py", expect=Expectation(verdict=Verdict.FAIL))], engine)["Anything"]
    assert (found.verdict, found.message) == (Verdict.SKIP, "there is no compiler")
    assert found.as_expected


@pytest.mark.parametrize("name", ["NeedsHardware", "NeedsHardwareInBackward"])
def test_check_whose_function_raises_skip_test_is_skipped(name: str) -> None:
    found = run_case(case(name, "lacking.py"))
    assert [(check.verdict, check.message) for check in found.checks] == [
        (Verdict.SKIP, "there is no such accelerator")
    ]
    assert found.as_expected


def test_reason_is_found_behind_other_exceptions() -> None:
    outer = RuntimeError("launch failed")
    outer.__cause__ = ValueError("inner")
    outer.__cause__.__context__ = NotOnThisMachine("no driver")
    assert what_is_lacking(outer) == "no driver"
    assert what_is_lacking(SkipTest("no GPU")) == "no GPU"


def test_other_exceptions_name_nothing_that_is_lacking() -> None:
    error = RuntimeError("wrong shape")
    error.__cause__ = error
    assert what_is_lacking(error) is None
