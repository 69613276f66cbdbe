"""The key `explore`: what the rules of a search become, alone and merged with those of a case."""

from __future__ import annotations

import pytest

from gradverify.case import ExploreRules, IndexRange, SizeRange
from tests.spec.support import FUNCTION, TENSOR, Folder

ABOVE = (
    FUNCTION
    + """\
dims: {n: 4, m: 6}
inputs:
  x: {shape: [n, m], uniform: [-3, 3]}
  y: {shape: [n // 2 + 1]}
  ids: {values: [0, 3, -100]}
  p: 0.1
  mode: none
  stride: {tuple: [1, 2]}
  weight:
  xs: [{shape: [2], integers: [0, 2]}]
"""
)

FORMS = [
    ("{}", ExploreRules()),
    ("{budget: 100}", ExploreRules(budget=100)),
    ('{sizes: {}, ranges: {}, indices: {}, choices: {}, require: "", fixed: [], budget: 400}', ExploreRules()),
    ("{sizes: {n: {}}}", ExploreRules(sizes={"n": SizeRange()})),
    (
        "{sizes: {n: {from: 0, to: 300, multiple_of: 4}}}",
        ExploreRules(sizes={"n": SizeRange(low=0, high=300, multiple_of=4)}),
    ),
    (
        "{ranges: {p: [0, 0.9], x: [-8, 8], stride: [1, 2], weight: [0, 1], y: [0, 0], xs: [0, 1]}}",
        ExploreRules(
            ranges={
                "p": (0.0, 0.9),
                "x": (-8.0, 8.0),
                "stride": (1.0, 2.0),
                "weight": (0.0, 1.0),
                "y": (0.0, 0.0),
                "xs": (0.0, 1.0),
            }
        ),
    ),
    (
        "{indices: {ids: {below: n, special: [-100]}, stride: {below: 3}, xs: {below: 2}, weight: {}}}",
        ExploreRules(
            indices={
                "ids": IndexRange(below="n", special=(-100,)),
                "stride": IndexRange(below=3),
                "xs": IndexRange(below=2),
                "weight": IndexRange(),
            }
        ),
    ),
    (
        "{choices: {mode: [none, tanh], stride: [[1, 2], [2, 2]], p: [0.1, 0, true], weight: [null]}}",
        ExploreRules(
            choices={"mode": ("none", "tanh"), "stride": ([1, 2], [2, 2]), "p": (0.1, 0, True), "weight": (None,)}
        ),
    ),
    ('{require: "len(y) == n // 2 + 1"}', ExploreRules(require="len(y) == n // 2 + 1")),
    ("{require: all(x > 5) and any(x == 7)}", ExploreRules(require="all(x > 5) and any(x == 7)")),
    ("{require: mode == 'none' and weight == None}", ExploreRules(require="mode == 'none' and weight == None")),
    ("{fixed: [p, n]}", ExploreRules(fixed=("p", "n"))),
]


@pytest.mark.parametrize(("text", "rules"), FORMS, ids=[text for text, _ in FORMS])
def test_form(folder: Folder, text: str, rules: ExploreRules) -> None:
    (case,) = folder.cases(f"{ABOVE}explore: {text}\n")
    assert case.explore == rules


def test_rules_are_merged_name_by_name(folder: Folder) -> None:
    text = ABOVE + "explore: {sizes: {n: {to: 8}, m: {}}, ranges: {p: [0, 1]}, fixed: [p]}\n"
    text += "cases: {a: {}, b: {explore: {sizes: {n: {from: 2}}, ranges: {x: [-4, 4]}, fixed: [x], budget: 9}}}\n"
    first, second = folder.cases(text)
    sizes = {"n": SizeRange(high=8), "m": SizeRange()}
    assert first.explore == ExploreRules(sizes=sizes, ranges={"p": (0.0, 1.0)}, fixed=("p",))
    assert second.explore == ExploreRules(
        sizes={"n": SizeRange(low=2, high=8), "m": SizeRange()},
        ranges={"p": (0.0, 1.0), "x": (-4.0, 4.0)},
        fixed=("x",),
        budget=9,
    )


def test_without_rules_a_case_has_the_default(folder: Folder) -> None:
    (case,) = folder.cases(TENSOR)
    assert case.explore == ExploreRules()
    assert case.exploring is None


def test_a_size_that_only_a_condition_names_is_used(folder: Folder) -> None:
    text = FUNCTION + "dims: {n: 2, m: 3}\ninputs: {x: {shape: [2]}, ids: {values: [0]}}\n"
    assert folder.errors(text + "explore: {require: n == 2, indices: {ids: {below: m}}}\n") == []
