"""Right specimens never fail, and wrong ones fail at the wrong entry."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult, Verdict
from tests.zoo.catalogue import ALL_WRONG, ZOO
from tests.zoo.slow_functions import SLOW_FUNCTIONS, WRONG_SLOW_FUNCTIONS
from tests.zoo.specimen import Specimen
from tests.zoo.wrong import Wrong

SETTINGS = Settings(torch_gradcheck=TorchGradcheck.NEVER)
TENTH = {specimen.name for specimen in ZOO[::10]}
ORDER_2 = [
    specimen
    for specimen in ZOO
    if (specimen.name in TENTH or "order 2" in specimen.tags) and "wrong at order 2" not in specimen.tags
]
LEAST = 200  # fewest specimens in the zoo


def marked_slow(rows: Iterable[Any]) -> list[Any]:
    return [pytest.param(row, marks=pytest.mark.slow) for row in rows]


def test_zoo_is_large_and_names_are_unique() -> None:
    names = Counter(specimen.name for specimen in (*ZOO, *SLOW_FUNCTIONS))
    assert len(ZOO) >= LEAST
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("specimen", [*ZOO, *marked_slow(SLOW_FUNCTIONS)], ids=lambda specimen: specimen.name)
def test_right_function_has_expected_verdict(specimen: Specimen) -> None:
    result = _run("gradcheck", specimen)
    assert specimen.allows(result.verdict), f"{result.message}; {[finding.message for finding in result.findings]}"


@pytest.mark.parametrize("specimen", [*ORDER_2, *marked_slow(SLOW_FUNCTIONS)], ids=lambda specimen: specimen.name)
def test_right_function_does_not_fail_at_order_2(specimen: Specimen) -> None:
    result = _run("gradgradcheck", specimen)
    assert result.verdict is not Verdict.FAIL, [finding.message for finding in result.findings]


@pytest.mark.parametrize(
    "wrong", [*ALL_WRONG, *marked_slow(WRONG_SLOW_FUNCTIONS)], ids=lambda wrong: wrong.specimen.name
)
def test_wrong_function_fails_at_wrong_entry(wrong: Wrong) -> None:
    result = _run(wrong.check, wrong.specimen)
    assert wrong.is_named_in(result), f"{result.message}; {[finding.message for finding in result.findings]}"


def _run(check: str, specimen: Specimen) -> CheckResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about casts and deprecations in the specimens
        problem = bind(specimen.function, specimen.inputs(0), names=specimen.names, name=specimen.name)
        return run_check(check, problem, SETTINGS)
