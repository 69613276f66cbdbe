"""Specs written to hang, to flood or to mislead get a few lines of errors."""

from __future__ import annotations

import pytest

from gradverify.spec.limits import MAX_ERRORS
from tests.spec.support import FUNCTION, TENSOR, Folder

TOO_MANY = (
    "more than 250,000 values, or more than 10,000 keys in one mapping "
    "(aliases count as often as they are used; large values belong into a `file:`)"
)
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
LADDER = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000))
MANY_INPUTS = FUNCTION + "inputs:\n" + "".join(f"  x{n}: 1\n" for n in range(5000))
MANY_CASES = "cases:\n" + "".join(f"  c{n}: {{inputs: {{x1: 2}}}}\n" for n in range(5000))
SHAPE_OF_64 = ", ".join(["18446744073709551615"] * 64)

FLOODS = [
    (BOMB, f"16:1: {TOO_MANY}"),
    (LADDER, "50:6: nested more than 50 levels deep"),
    ("[" * 100_000, "1:51: nested more than 50 levels deep"),
    ("- " * 100_000, "1:101: nested more than 50 levels deep"),
    ("{a: " * 100_000, "1:201: nested more than 50 levels deep"),
    ("# a comment\nb: " + "[" * 3_000, "2:53: nested more than 50 levels deep"),
    ("? " * 100_000, "1:101: nested more than 50 levels deep"),
    ("a: &a [*a]\n", "1:1: a: unknown key"),
    ("".join(f"k{n}: 1\n" for n in range(300_000)), f"10002:1: {TOO_MANY}"),
    ("[" + "1," * 300_000 + "]", f"1:500000: {TOO_MANY}"),
    ("---\na\n" * 400_000, "2:1: expected a mapping, found text 'a'"),
    ("--- {}\n" * 400_000, "1:5: function: is missing"),
    ("a: &a\nb: *a\n" * 100_000, "3:1: `a` is given twice"),
    ("a" * 4_000_000, f"1:1: expected a mapping, found text '{'a' * 59}…'"),
    ('"' + "\\x1b" * 1_000_000 + '"', "1:1: expected a mapping, found text '"),
    ("seed: " + "9" * 4_000_000, "1:1: function: is missing"),
    (TENSOR + "sed: 1\n" + MANY_CASES, "3:1: sed: unknown key"),
    (MANY_INPUTS + MANY_CASES, "5023:3: cases.c19: the keys above and the cases make more than 100,000 keys together"),
    (
        FUNCTION + f"inputs: {{x: {{values: [{'q, ' * 20_000}]}}}}",
        "2:23: inputs.x.values[0]: expected a number, found text 'q'",
    ),
    (
        FUNCTION + f"inputs: {{x: {{shape: [{'-1, ' * 5_000}]}}}}",
        "2:22: inputs.x.shape[0]: must not be negative, found -1",
    ),
    (
        FUNCTION + "dims: {" + "".join(f"n{n}: 1, " for n in range(5000)) + "}\ninputs: {x: {shape: [n1]}}",
        "2:7: dims: at most 100 named sizes, found 5000",
    ),
    (
        FUNCTION + f"dims: {{n: 1}}\ninputs: {{x: {{shape: [{'m, ' * 20_000}n]}}}}",
        "3:22: inputs.x.shape[0]: there is no size `m` (known: n)",
    ),
    (
        FUNCTION + f"dims: {{n: 2}}\ninputs: {{x: {{shape: [{'n * ' * 249}n]}}}}",
        "3:22: inputs.x.shape[0]: `" + "n * " * 14 + "n *…` cannot be read: it is nested more than 50 levels deep",
    ),
    (
        MANY_INPUTS + "explore: {ranges: {" + "".join(f"y{n}: [0, 1], " for n in range(5000)) + "}}\n",
        "5003:20: explore.ranges.y0: there is no input `y0` (known: x0, x1, x2,",
    ),
    (
        FUNCTION + "inputs: {x: 1}\nexplore: {choices: {x: [" + ", ".join(map(str, range(50_000))) + "]}}\n",
        "3:24: explore.choices.x: at most 100 choices, found 50000",
    ),
    (
        FUNCTION + "inputs: {x: {shape: [2], integers: [0, 9000000000000000000]}}\nexplore: {indices: {x: {below: 9}}}",
        "3:24: explore.indices.x: `inputs` has 9 in `x`, which is not from 0 to 8 (name it in `special`: [9])",
    ),
    (FUNCTION + f"inputs: {{x: {{shape: [{SHAPE_OF_64}]}}}}", "2:21: inputs.x.shape: would need more than 999 EiB"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "first"), FLOODS, ids=[text[:30] for text, _ in FLOODS])
def test_flood(folder: Folder, text: str, first: str) -> None:
    lines = folder.errors(text)
    assert len(lines) <= MAX_ERRORS + 1
    assert lines[0].startswith(first)
    assert all(len(line) < 1000 and line.isprintable() for line in lines)


@pytest.mark.slow
def test_large_spec_is_read(folder: Folder) -> None:
    values = ", ".join(["0.5"] * 100_000)
    text = f"{FUNCTION}inputs: {{x: {{values: [{values}]}}}}\ncases:\n"
    cases = folder.cases(text + "".join(f"  c{n}: {{}}\n" for n in range(1000)))
    assert len({case.id for case in cases}) == 1000


@pytest.mark.slow
def test_a_long_list_of_mistakes_is_cut(folder: Folder) -> None:
    lines = folder.errors(TENSOR + "".join(f"k{n}: 1\n" for n in range(3000)))
    assert len(lines) == MAX_ERRORS + 1
    assert lines[-1] == f"{MAX_ERRORS + 2}:1: and more mistakes than are worth listing here"
