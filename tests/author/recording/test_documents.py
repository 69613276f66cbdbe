"""Signatures become documents: names for sizes, small sizes, values that are drawn as they were seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from gradverify.author.recording.documents import as_draft, document_of, first_plan, fits, remarks_of
from gradverify.author.recording.drawn import real_values, same_entries, truth_values, whole_values
from gradverify.author.recording.groups import Group, grouped, why_no_word
from gradverify.author.recording.notes import (
    SeenArgument,
    SeenList,
    SeenOther,
    SeenPlain,
    SeenSize,
    SeenTensor,
    SeenValues,
    Signature,
    Subject,
)
from gradverify.author.recording.sizes import named_sizes, smaller_sizes
from gradverify.spec.write import document_text

SUBJECT = Subject(module="ops", name="F", file="/p/ops.py")
NORMAL = SeenValues(count=100, low=-3.0, high=3.0, mean=0.0, std=1.0, tails=3.0)


def tensor(*shape: int, dtype: str = "float32", grad: bool = True, layout: str = "contiguous") -> SeenTensor:
    return SeenTensor(shape=shape, dtype=dtype, device="cpu", layout=layout, requires_grad=grad)


def whole(*shape: int) -> SeenTensor:
    return tensor(*shape, dtype="int64", grad=False)


def signature(calls: int = 1, values: dict[str, SeenValues] | None = None, **arguments: SeenArgument) -> Signature:
    seen = {name: (found,) for name, found in (values or {}).items()}
    return Signature(subject=SUBJECT, arguments=arguments, calls=calls, values=seen)


def group_of(*signatures: Signature) -> Group:
    (group,) = grouped(signatures).groups
    return group


def text_of(group: Group, *, attempt: int = 0, dtype: str = "float64", compared: frozenset[str] = frozenset()) -> str:
    """Return the document with the small sizes of an attempt."""
    named, small = next(islice(smaller_sizes(group, named_sizes(group)), attempt, None))
    plan = replace(first_plan(group, "ops:F"), named=named, small=small, dtype=dtype, compared=compared)
    return document_text(document_of(group, plan))


def test_sizes_that_agree_have_one_name() -> None:
    group = group_of(
        signature(3, x=tensor(64, 32, 1), weight=tensor(32), size=SeenSize(size=(64, 7))),
        signature(5, x=tensor(50, 32, 1), weight=tensor(32), size=SeenSize(size=(50, 7))),
    )
    assert text_of(group) == (
        "function: ops:F\n"
        "dims: {n: 2, d: 4}\n"
        "inputs:\n"
        "  x: {shape: [n, d, 1]}\n"
        "  weight: {shape: [d]}\n"
        "  size: {size: [n, 7]}\n"
        "cases:\n"
        "  small: {}\n"
        "  recorded: {dims: {n: 50, d: 32}, dtypes: [float32]}\n"
        "  recorded-2: {dims: {n: 64, d: 32}, dtypes: [float32]}\n"
    )


def test_names_of_inputs_are_not_taken() -> None:
    group = group_of(signature(n=tensor(5, 9), d=SeenPlain(value=1)))
    assert set(named_sizes(group).recorded[0]) == {"k", "m"}


def test_other_attempts_follow_multiples_and_whole_numbers() -> None:
    group = group_of(signature(kv=tensor(12, 64), q=tensor(12, 32), heads=SeenPlain(value=8)))
    tried = [(str(named.entries["kv", 1]), dict(sizes)) for named, sizes in smaller_sizes(group, named_sizes(group))]
    assert tried[0] == ("d", {"n": 4, "d": 6, "k": 5})
    assert ("2 * k", {"n": 4, "k": 5}) in tried
    assert ("d", {"n": 4, "d": 16, "k": 16}) in tried
    assert tried[-1] == ("d", {"n": 12, "d": 64, "k": 32})


def test_small_sizes_never_grow() -> None:
    group = group_of(signature(x=tensor(3, 2)), signature(x=tensor(3, 90)))
    for _, sizes in smaller_sizes(group, named_sizes(group)):
        assert sizes["n"] <= 3 and sizes["d"] <= 2


def test_dtypes_of_one_size_are_one_case() -> None:
    group = group_of(signature(2, x=tensor(9)), signature(1, x=tensor(9, dtype="bfloat16")))
    assert "  recorded: {dims: {n: 9}, dtypes: [float32, bfloat16]}\n" in text_of(group)


def test_checks_of_low_precision_make_a_case_of_their_own() -> None:
    group = group_of(signature(2, x=tensor(9)), signature(1, x=tensor(9, dtype="bfloat16")))
    text = text_of(group, compared=frozenset({"bfloat16"}))
    assert "  recorded: {dims: {n: 9}, dtypes: [float32]}\n" in text
    assert "  recorded-2: {dims: {n: 9}, dtypes: [bfloat16], checks: [reference, contract]}\n" in text


def test_mixed_dtypes_and_layouts_belong_to_the_recorded_case() -> None:
    group = group_of(
        signature(2, x=tensor(9, 9, dtype="bfloat16"), y=tensor(9)),
        signature(1, x=tensor(9, 9, dtype="bfloat16", layout="transposed"), y=tensor(9)),
    )
    text = text_of(group)
    assert "  x: {shape: [n, n]}\n  y: {shape: [n]}\n" in text
    assert "  recorded: {dims: {n: 9}, inputs: {y: {dtype: float32}}, dtypes: [bfloat16]}\n" in text
    assert "inputs: {x: {layout: transposed}, y: {dtype: float32}}" in text


def test_one_case_at_the_recorded_size_needs_no_name() -> None:
    group = group_of(signature(x=tensor(3, dtype="float64")))
    assert text_of(group) == "function: ops:F\ndims: {n: 3}\ninputs:\n  x: {shape: [n]}\n"


def test_at_most_three_recorded_sizes() -> None:
    group = group_of(*(signature(size, x=tensor(size)) for size in range(10, 16)))
    text = text_of(group)
    assert "recorded-3: {dims: {n: 13}" in text and "recorded-4" not in text


def test_inputs_that_never_required_grad() -> None:
    group = group_of(signature(x=tensor(5), y=tensor(5, grad=False)))
    assert "  y: {shape: [n], requires_grad: false}\n" in text_of(group)
    alone = group_of(signature(x=tensor(5, grad=False)))
    assert "  x: {shape: [n]}\n" in text_of(alone)


def test_indices_stay_below_the_size_that_they_count_in() -> None:
    seen = SeenValues(low=7, high=99, least=7)
    group = group_of(signature(values={"ids": seen}, table=tensor(100, 16), ids=whole(50)))
    text = text_of(group)
    assert "  ids: {shape: [k], integers: [0, 4]}\n" in text
    assert "recorded: {dims: {n: 100, d: 16, k: 50}, inputs: {ids: {integers: [7, 100]}}, dtypes: [float32]}" in text


def test_whole_numbers_that_say_something_of_sizes_are_written_as_seen() -> None:
    """Lengths of equal sequences, and offsets: drawn in their range, 6 would land in a dimension of size 5."""

    def with_lengths(n: int) -> Signature:
        lengths = SeenValues(low=5, high=6, least=5, repeats=True, entries=((5, 6),) * n)
        ends = SeenValues(low=0, high=7, least=0, is_sorted=True, entries=(0, 2, 2, 7))
        arguments = {"x": tensor(n, 5, 6), "lengths": whole(n, 2), "ends": whole(4)}
        return signature(values={"lengths": lengths, "ends": ends}, **arguments)

    group = group_of(with_lengths(3), with_lengths(2))
    assert [sizes["n"] for named, sizes in smaller_sizes(group, named_sizes(group)) if fits(group, named, sizes)] == [2]
    plan = replace(first_plan(group, "ops:F"), small=named_sizes(group).recorded[1], dtype="float64")
    assert document_text(document_of(group, plan)) == (
        "function: ops:F\n"
        "dims: {n: 2, d: 5, k: 6}\n"
        "inputs:\n"
        "  x: {shape: [n, d, k]}\n"
        "  lengths: {values: [[5, 6], [5, 6]]}\n"
        "  ends: {values: [0, 2, 2, 7]}\n"
        "cases:\n"
        "  small: {}\n"
        "  recorded: {dims: {n: 3}, inputs: {lengths: {values: [[5, 6], [5, 6], [5, 6]]}}, dtypes: [float32]}\n"
        "  recorded-2: {dtypes: [float32]}\n"
    )
    assert remarks_of(group, plan) == [
        "lengths was the same in all calls; written as it was",
        "ends was the same in all calls; written as it was",
    ]


@pytest.mark.parametrize(
    "others",
    [
        (SeenValues(low=5, high=6, entries=((5, 6), (6, 6))),),  # rows differ
        (SeenValues(low=5, high=6, entries=((5, 6), (5, 6))), SeenValues(low=4, high=6, entries=((4, 6), (4, 6)))),
        (SeenValues(low=5, high=6, entries=(6, 5)),),  # as labels
        (SeenValues(low=5, high=5, entries=((5, 5), (5, 5))),),
        (SeenValues(low=5, high=6),),  # many
    ],
)
def test_other_whole_numbers_are_drawn(others: tuple[SeenValues, ...]) -> None:
    assert same_entries(others) is None


def test_kept_values_take_the_place_of_drawn_ones() -> None:
    group = group_of(signature(x=tensor(20, 4), ends=whole(3)))
    plan = replace(first_plan(group, "ops:F"), files={(0, "ends"): "F-ends.pt"})
    assert document_text(document_of(group, plan)) == (
        "function: ops:F\n"
        "dims: {n: 20, d: 4}\n"
        "inputs:\n"
        "  x: {shape: [n, d]}\n"
        "  ends: {shape: [k], integers: [0, 1]}\n"
        "cases:\n"
        "  recorded: {inputs: {ends: {file: F-ends.pt}}, dtypes: [float32]}\n"
    )


@pytest.mark.parametrize(
    ("seen", "keys"),
    [
        (NORMAL, {}),
        (replace(NORMAL, mean=4.04, std=0.52), {"normal": [4, 0.52]}),
        (replace(NORMAL, low=0.00123, high=0.99876, mean=0.5, std=0.29, tails=1.8), {"uniform": [0.002, 0.998]}),
        (replace(NORMAL, low=0.5, high=9.0, mean=1.0, std=1.0, tails=9.0), {"uniform": [0.5, 9]}),
        (replace(NORMAL, is_sorted=True, low=0.0, high=1.0), {"linspace": [0, 1]}),
        (
            replace(NORMAL, structure="positive_definite"),
            {"constraint": "positive_definite"},
        ),
        (replace(NORMAL, structure="triangular"), {"constraint": "triangular"}),
        (SeenValues(count=4, low=1.0, high=1.0, mean=1.0, std=0.0), {"uniform": [0.5, 1.5]}),
        (SeenValues(count=4, low=0.0, high=0.0, mean=0.0, std=0.0), {"uniform": [-0.5, 0.5]}),
        (SeenValues(is_finite=False), {}),
    ],
)
def test_real_values_are_drawn_as_seen(seen: SeenValues, keys: dict[str, Any]) -> None:
    assert real_values([seen], differentiated=True).keys == keys


def test_values_that_are_not_differentiated_stay_constant_and_whole() -> None:
    constant = SeenValues(count=4, low=0.5, high=0.5, mean=0.5, std=0.0)
    assert real_values([constant], differentiated=False).keys == {"linspace": [0.5, 0.5]}
    mask = SeenValues(count=9, low=0.0, high=1.0, mean=0.4, std=0.5, is_whole=True)
    assert real_values([mask], differentiated=False).keys == {"integers": [0, 2], "dtype": "case"}


@pytest.mark.parametrize(
    ("seen", "keys"),
    [
        (SeenValues(low=2, high=9), {"integers": [2, 10]}),
        (SeenValues(low=-100, high=9, least=0), {"integers": [0, 10]}),
        (SeenValues(low=0, high=9, is_permutation=True), {"permutation": True}),
        (SeenValues(), {"integers": [0, 1]}),
    ],
)
def test_whole_numbers_are_drawn_in_their_range(seen: SeenValues, keys: dict[str, Any]) -> None:
    assert whole_values([seen]).keys == keys


def test_share_of_truth_values() -> None:
    assert truth_values([SeenValues(mean=0.25), SeenValues(mean=0.75)]).keys == {"bernoulli": 0.5}


def test_remarks_say_what_differs() -> None:
    group = group_of(
        signature(
            values={
                "x": replace(NORMAL, is_finite=False),
                "w": SeenValues(low=1.0, high=1.0),
                "ids": SeenValues(low=-1, high=3, least=0),
            },
            x=tensor(5),
            w=tensor(5),
            ids=whole(4),
        )
    )
    assert remarks_of(group, first_plan(group, "ops:F")) == [
        "x held NaN or infinity in some call; drawn finite",
        "w was 1 everywhere in all calls; drawn around it",
        "ids had values below zero down to -1; drawn from 0 on, and -1 is left to explore",
    ]


def test_values_of_padding_are_left_to_explore() -> None:
    group = group_of(
        signature(values={"labels": SeenValues(low=-100, high=3, least=0)}, x=tensor(4), labels=whole(4), ids=whole(4))
    )
    document = document_of(group, first_plan(group, "ops:F"))
    assert document["inputs"]["labels"]["integers"] == [0, 4]
    assert document["explore"] == {"indices": {"labels": {"special": [-100]}}}


def test_other_arguments_and_dimensions_part_groups() -> None:
    signatures = [signature(x=tensor(3), p=SeenPlain(value=value)) for value in (1, 2)]
    signatures += [signature(x=tensor(4), p=SeenPlain(value=1)), signature(x=tensor(4, 4), p=SeenPlain(value=1))]
    assert [len(group.signatures) for group in grouped(signatures).groups] == [2, 1, 1]


def test_what_no_spec_can_say_is_left_out_with_the_reason() -> None:
    local = Subject(module="m", name="f.<locals>.F", reason="no name")
    found = grouped(
        [
            Signature(subject=local, arguments={"x": tensor(3)}, calls=2),
            signature(4, x=tensor(0, 3)),
            *(signature(x=tensor(3), p=SeenPlain(value=value)) for value in range(10)),
        ]
    )
    assert len(found.groups) == 8
    assert [(each.calls, each.reason) for each in found.left_out] == [
        (2, "no name"),
        (4, "a tensor without elements has no gradient"),
        (2, "2 more combinations of other arguments than the 8 most frequent"),
    ]


def test_reasons_for_drafts() -> None:
    assert why_no_word(group_of(signature(x=tensor(3), c=SeenOther(kind="Config")))) == (
        "`c` is a Config, which YAML has no word for"
    )
    mixed = SeenList(items=(tensor(3), SeenPlain(value=2)))
    assert why_no_word(group_of(signature(xs=mixed))) == (
        "`xs` holds tensors and other values, which a spec cannot describe together"
    )
    assert why_no_word(group_of(signature(xs=SeenList(items=(tensor(3), tensor(3)))))) == ""


def test_tensors_beside_other_values_are_a_draft() -> None:
    mixed = SeenList(items=(tensor(), SeenPlain(value="super")))
    group = group_of(signature(x=tensor(3), p=mixed))
    plan = as_draft(first_plan(group, "ops:F"), why_no_word(group))
    document = document_of(group, plan)
    assert "holds tensors and other values" in document["draft"]
    assert document["inputs"]["p"][1] == "super"
