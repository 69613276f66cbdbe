"""A search that ended during a try goes on after it, and finds what it would have found."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import replace

import pytest

from gradverify.case import Case, ExploreRules, Exploring, Literal, Normal, TensorInput, Trying
from gradverify.result import Exploration
from gradverify.run.exploring import explored
from gradverify.run.load import find
from tests.run.making import case


def pooled(name: str) -> Case:
    inputs = {
        "x": TensorInput(origin=Normal(), shape=(2, 6)),
        "size": Literal(value=2),
        "stride": Literal(value=2),
    }
    return case(name, "pooled.py", inputs=inputs, explore=ExploreRules(budget=40))


def searched(wanted: Case, request: Exploring) -> tuple[Exploration, list[Trying]]:
    tried: list[Trying] = []
    return explored(wanted, find(wanted.target), None, request, tried.append), tried


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Pool", "Branches", "OnlySmallWindows"])
def test_a_search_goes_on_as_if_it_had_not_ended(name: str) -> None:
    wanted = pooled(name)
    whole, tried = searched(wanted, Exploring(budget=40))
    illegal = [one for one, after in itertools.pairwise(tried) if after.so_far.tries == one.so_far.tries]
    assert illegal and not whole.uncovered
    for trying in (illegal[0], illegal[-1]):
        sent = pickle.loads(pickle.dumps(trying))
        again, others = searched(wanted, Exploring(budget=40, after=sent))
        assert again == whole
        assert len(others) == sum(one.number > trying.number for one in tried)


def test_tries_that_were_lost_stay_lost() -> None:
    wanted = pooled("Pool")
    _, tried = searched(wanted, Exploring(budget=20))
    lost = replace(tried[3], so_far=replace(tried[3].so_far, lost=("stride: 3 (was 2): crashed",)))
    again, _ = searched(wanted, Exploring(budget=20, after=lost))
    assert again.lost == ("stride: 3 (was 2): crashed",)
    assert again.tries == 20
