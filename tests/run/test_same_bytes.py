"""Reports are equal byte for byte, whatever the workers, the order, and the other cases of the run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gradverify.case import Case, Expectation, Literal, Normal, TensorInput
from gradverify.cli.select import matching
from gradverify.cli.shard import part_of
from gradverify.report.to_json import to_json
from gradverify.result import Shard, Verdict
from gradverify.run.pool import LocalPool
from gradverify.run.task import Engine
from tests.run.making import case, outcome

pytestmark = pytest.mark.slow  # a dozen runs of many cases

X = TensorInput(origin=Normal(), shape=(3,))


def all_cases() -> list[Case]:
    """Return cases that draw random numbers, fail, raise, and read and change the state of their process."""
    all_three = ("gradcheck", "gradgradcheck", "contract")
    kinds = [
        case("Square", checks=all_three),
        case("WrongCube", checks=all_three, expect=Expectation(verdict=Verdict.FAIL)),
        case("Scaled", inputs={"x": X, "shift": Literal(value=1.0)}, init={"size": 3}),
        case("noise", stochastic=True),
        case("noise", id="spec/restless/cpu-float64", draw_key="spec/restless"),
        case("NewStyle", inputs={"x": X, "power": Literal(value=3)}, dtype="float32"),
        case("unruly", "faults.py"),
        case("sees", "faults.py"),
        case("Drawn", "drawn.py"),
    ]
    repeated = [(number, kind) for number in range(2) for kind in kinds]
    return [
        replace(kind, id=f"{kind.id}-sample{number}", draw_key=f"{kind.draw_key}/sample{number}")
        for number, kind in repeated
    ]


CASES = all_cases()
IDS = [wanted.id for wanted in CASES]


def text(cases: Sequence[Case], engine: Engine) -> str:
    """Return the JSON of a run without its seconds, the cases in the order of CASES."""
    report = outcome(list(cases), engine).report
    found = sorted(report.cases, key=lambda result: IDS.index(result.id))
    timeless = tuple(replace(result, seconds=0.0) for result in found)
    return to_json(replace(report, summary=replace(report.summary, seconds=0.0), cases=timeless))


@pytest.fixture(scope="module")
def expected(alone: Engine) -> str:
    return text(CASES, alone)


def test_the_cases_are_of_every_kind(expected: str) -> None:
    for verdict in ("pass", "fail", "error"):
        assert f'"verdict": "{verdict}"' in expected


@pytest.mark.slow
def test_the_same_bytes_with_four_workers(expected: str) -> None:
    pool = LocalPool(4)
    try:
        assert text(CASES, pool) == expected
    finally:
        pool.close()


@pytest.mark.slow
def test_the_same_bytes_in_any_order(expected: str, engine: Engine) -> None:
    assert text(random.Random(1).sample(CASES, len(CASES)), engine) == expected


@pytest.mark.parametrize("expression", ["sample1", "sees or noise", "wrongcube and sample0", "not (square or scaled)"])
def test_the_same_bytes_for_a_part(expected: str, engine: Engine, expression: str) -> None:
    chosen = matching(CASES, expression)
    assert 0 < len(chosen) < len(CASES)
    for entry in pieces(text(chosen, engine), len(chosen)):
        assert entry in expected


def test_the_same_bytes_from_shards(expected: str, alone: Engine, engine: Engine) -> None:
    parts = [part_of(CASES, Shard(index=number, of=3)) for number in (1, 2, 3)]
    assert sorted(wanted.id for part in parts for wanted in part) == sorted(IDS)
    for part, pool in zip(parts, (alone, engine, alone), strict=True):
        for entry in pieces(text(part, pool), len(part)):
            assert entry in expected


def pieces(text: str, count: int) -> list[str]:
    """Return the JSON of each case; each is on one line."""
    _, _, cases = text.partition('"cases": [\n')
    found = [line.removesuffix(",") for line in cases.removesuffix("\n]\n}\n").split("\n")]
    assert len(found) == count
    return found
