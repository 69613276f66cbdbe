"""Expressions over named values: what they are worth, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.formula import MAX_LENGTH, FormulaError, evaluate, names_of, parse

X = torch.arange(6.0).reshape(2, 3).requires_grad_()
VALUES: dict[str, Any] = {
    "n": 4,
    "m": 6,
    "p": 0.5,
    "x": X,
    "ids": torch.tensor([2, 0, 2]),
    "scale": torch.tensor(3.0),
    "empty": torch.zeros(0),
    "stride": [1, 2],
    "size": (2, 3),
    "mode": "mean",
    "xs": [torch.ones(3), torch.zeros(2)],
    "weight": None,
}

WORTH = [
    ("2 * n", 8),
    ("n // 2 + 1", 3),
    ("n - 1", 3),
    ("m % n", 2),
    ("(n + m) / 4", 2.5),
    ("-n + +m", 2),
    ("min(n, m, 5)", 4),
    ("max(n, m)", 6),
    ("abs(n - m)", 2),
    (" n\n+ 1", 5),
    ("n == 4", True),
    ("0 < n <= 4 < m", True),
    ("0 < n < 4 < m", False),
    ("n > 4 or m > 4", True),
    ("not n > 4 and p", True),
    ("n > 4 and n // 0 == 1", False),
    ("len(x)", 2),
    ("x.shape", (2, 3)),
    ("x.shape[-1]", 3),
    ("x.shape == [2, 3]", True),
    ("x.shape != size", False),
    ("x.shape[1:] == [3]", True),
    ("x.shape == weight", False),
    ("stride.shape", (2,)),
    ("n.shape", ()),
    ("x[1, 2]", 5.0),
    ("x[1][0]", 3.0),
    ("x[:, 1]", [1.0, 4.0]),
    ("x[0:2, 1:]", [[1.0, 2.0], [4.0, 5.0]]),
    ("x[0, 1:]", [1.0, 2.0]),
    ("all(x[:, 2] > x[:, 0])", True),
    ("any(x[:, 0] > x[:, 1])", False),
    ("max(x)", 5.0),
    ("min(x)", 0.0),
    ("sum(x)", 15.0),
    ("all(x >= 0)", True),
    ("any(x > 5)", False),
    ("all(x == x)", True),
    ("sorted(ids)", [0, 2, 2]),
    ("distinct(ids)", False),
    ("distinct(x)", True),
    ("all(ids < n) and all(0 <= ids)", True),
    ("abs(x - 3)[0]", [3.0, 2.0, 1.0]),
    ("scale * 2", 6.0),
    ("scale > 0", True),
    ("sum(empty)", 0),
    ("stride * 2", [2, 4]),
    ("stride + [1, 1]", [2, 3]),
    ("n in stride or 2 in stride", True),
    ("mode in ['mean', 'sum']", True),
    ("mode not in ['none']", True),
    ("mode == 'mean'", True),
    ("len(mode)", 4),
    ("weight == None", True),
    ("len(xs) == 2 and all(xs[0] > 0) and xs[1].shape == [2]", True),
    ("True", True),
]


@pytest.mark.parametrize(("text", "expected"), WORTH)
def test_value_of_an_expression(text: str, expected: Any) -> None:
    value = evaluate(parse(text), VALUES)
    assert value == expected
    assert type(value) is type(expected)


UNREADABLE = [
    ("", 1, "it is empty"),
    ("  ", 1, "it is empty"),
    ("n ** 2", 1, "only the operators + - * / // % are known, write a product"),
    ("1 + ~n", 5, "only the operators + - * / // % are known"),
    ("é + n << 2", 1, "only the operators + - * / // % are known"),
    ("é + (n @ 2)", 6, "only the operators + - * / // % are known"),
    ("  1 + (n @ 2)", 8, "only the operators + - * / // % are known"),
    ("n is None", 1, "`is` is not known, write == or !="),
    ("n # one", 3, "the character '#' is not allowed"),
    ("n\\", 2, "the character '\\\\' is not allowed"),
    ("n\0", 2, "the character '\\x00' is not allowed"),
    ("b'1'", 1, "only numbers, text, True, False and None can be written out"),
    ("2j", 1, "only numbers, text, True, False and None can be written out"),
    ("9223372036854775808", 1, "a whole number does not fit in 64 bits"),
    ("lambda: 1", 1, "only names, numbers, operators and a few functions are known"),
    ("[i for i in x]", 1, "only names, numbers, operators and a few functions are known"),
    ("f'{n}'", 1, "only names, numbers, operators and a few functions are known"),
    ("(n := 3)", 2, "only names, numbers, operators and a few functions are known"),
    ("min(*x)", 5, "only names, numbers, operators and a few functions are known"),
    ("x.numel()", 1, "this is no function, there are len, min, max, abs, sum, all, any, sorted, distinct"),
    ("eval('1')", 1, "`eval` is no function, there are len, min, max, abs, sum, all, any, sorted, distinct"),
    ("x.__class__", 1, "`.__class__` is not known, only `.shape` is"),
    ("len(x, n)", 1, "`len` takes one value"),
    ("max(x, key=n)", 1, "`max` takes values"),
    ("1 + " * 250 + "n", 1, "an expression has at most 1,000 characters, found 1,001"),
    ("-" * 60 + "n", 52, "it is nested more than 50 levels deep"),
]


@pytest.mark.parametrize(("text", "column", "message"), UNREADABLE, ids=[text[:20] for text, _, _ in UNREADABLE])
def test_text_that_is_refused(text: str, column: int, message: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(text)
    assert (caught.value.column, caught.value.message) == (column, message)


@pytest.mark.parametrize("text", ["n m", "n +", "2 * (n", ")", "a = 1", "import os", "1if"])
def test_syntax_error_has_a_column(text: str) -> None:
    with pytest.raises(FormulaError, match=r"^this is no expression$") as caught:
        parse(text)
    assert 1 <= caught.value.column <= len(text)


WORTHLESS = [
    ("n // (m - 6)", 1, "it divides by zero"),
    ("1 + n % 0", 5, "it divides by zero"),
    ("1 + q", 5, "`q` has no value"),
    ("n * 4611686018427387904", 1, "a whole number does not fit in 64 bits"),
    ("sum([9223372036854775807, 1])", 1, "a whole number does not fit in 64 bits"),
    ("mode * 1000", 1, "expected a number, found text"),
    ("weight + 1", 1, "expected a number, found None"),
    ("min(mode)", 1, "expected a number, found text"),
    ("weight < 1", 1, "`weight < 1` cannot be computed of these values"),
    ("x > 0 or n", 1, "a list is no condition, write all(…) or any(…)"),
    ("not x", 5, "a list is no condition, write all(…) or any(…)"),
    ("0 < x < 3", 1, "lists are compared two at a time"),
    ("x.shape < [3, 3]", 1, "tuples are equal or not, they have no order"),
    ("x + ids", 1, "lists of 2 and 3 entries do not go together"),
    ("x[2]", 1, "there is no entry 2, the list has 2"),
    ("n[0]", 1, "only lists have entries"),
    ("stride[p]", 1, "`stride[p]` cannot be computed of these values"),
    ("len(n)", 1, "only lists have a length"),
    ("max(empty)", 1, "there is no entry"),
]


@pytest.mark.parametrize(("text", "column", "message"), WORTHLESS)
def test_expression_without_a_value(text: str, column: int, message: str) -> None:
    formula = parse(text)
    with pytest.raises(FormulaError) as caught:
        evaluate(formula, VALUES)
    assert (caught.value.column, caught.value.message) == (column, message)


def test_names_are_those_that_need_a_value() -> None:
    assert names_of(parse("len(x) == n // 2 and min(m, n) > max")) == ("x", "n", "m", "max")


def test_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(FormulaError("it is empty", 3)))
    assert (error.message, error.column) == ("it is empty", 3)


@settings(max_examples=200, deadline=2000, derandomize=True)
@given(st.lists(st.sampled_from([*"nmx()[]+-*/%<>=,.:0123456789' \n", "len", "min", " and ", "not "]), max_size=40))
def test_any_text_has_a_value_or_an_error(pieces: list[str]) -> None:
    try:
        evaluate(parse("".join(pieces)), VALUES)
    except FormulaError as reason:
        assert 1 <= reason.column <= MAX_LENGTH


@pytest.mark.parametrize("text", ["(" * 500, "[" * 999, "n" + "[0" * 400, "not " * 249, "n." * 499 + "n", "-" * 999])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FormulaError):
        parse(text)
