"""`-k`: expressions evaluate as in Python, and errors name the column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_specimens import case

from gradverify.cli.expression import ExpressionError, matcher
from gradverify.cli.select import matching

words = st.sampled_from(["relu", "cpu", "float64", "x/y-z", "sample1"])
expressions = st.recursive(
    words,
    lambda inner: st.one_of(
        inner.map(lambda part: f"not ({part})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), words).map(" ".join),
    ),
    max_leaves=8,
)


@given(expressions, st.sets(words))
def test_means_what_python_means(text: str, present: set[str]) -> None:
    name = " ".join(sorted(present))
    known = {word: word in name for word in ("relu", "cpu", "float64", "x/y-z", "sample1")}
    python = " ".join(
        str(known[word]) if word in known else word for word in text.replace("(", " ( ").replace(")", " ) ").split()
    )
    assert matcher(text)(name) is eval(python)


@given(st.text(alphabet="ab()'\" andornot", max_size=30))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        assert matcher(text)("ab") in (True, False)
    except ExpressionError as error:
        assert str(error).startswith("-k ")


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "a name is missing at the end"),
        ("a and", 6, "a name is missing at the end"),
        ("and a", 1, "a name is missing before `and`"),
        ("(a or b", 1, "this parenthesis is not closed"),
        ("a b", 3, "`b` is not expected here"),
        ("a )", 3, "`)` is not expected here"),
        ("a or 'b", 6, "a quote is not closed"),
        ("(" * 1000, 102, "nested too deeply"),
        ("not " * 1000, 405, "nested too deeply"),
    ],
)
def test_refusals(text: str, column: int, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        matcher(text)
    assert f"column {column}: {problem} (" in str(caught.value)


def test_case_and_quotes() -> None:
    assert matcher("RELU")("clipped_relu")
    assert matcher("'a b' and \"(c)\"")("x a b (c)")
    assert matcher("'not'")("knot")
    assert not matcher("not relu")("relu")
    assert matcher("a or b and c")("a")


def test_an_id_that_is_there_means_nothing_else() -> None:
    both = [case("b/relu/one/cpu"), case("relu/one/cpu"), case("relu/one/cpu-sample1")]
    assert matching(both, "b/relu/one/cpu") == (both[0],)
    assert matching(both, "relu/one/cpu") == (both[1],)
