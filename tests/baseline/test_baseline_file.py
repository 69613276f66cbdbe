"""A baseline's file: writing and reading round trip, and mistakes are reported with their place."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradverify.baseline.model import Baseline, Entry
from gradverify.baseline.read import parse, read_baseline
from gradverify.baseline.write import to_yaml
from gradverify.catalogue import causes, known_checks

CODES = ("GV101", "GV102", "GV307", "GV904")
SPRING = datetime.date(2026, 4, 1)


def entry(**changes: object) -> Entry:
    values = {"case": "a/b/cpu-float64", "check": "gradcheck", "code": "GV101", "total": 1, "reason": "issue 12"}
    return Entry(**(values | changes))  # type: ignore[arg-type]


def test_it_is_easy_to_read_and_always_in_the_same_order() -> None:
    entries = (
        entry(case="b/c/cpu-float64"),
        entry(code="GV102", reason="no: not yet", expires=SPRING),
        entry(check=None, code="GV904", reason="yes"),
        entry(of="y", wrt="x", total=224, cause="missing-mask"),
        entry(of="y", wrt="w.imag", total=1000),
        entry(),
    )
    text = to_yaml(Baseline(entries=entries))
    assert text == to_yaml(Baseline(entries=entries[::-1]))
    assert text.partition("version")[2] == (
        ": 2\n"
        "known:\n"
        "  - case: a/b/cpu-float64\n"
        "    code: GV904\n"
        "    total: 1\n"
        "    reason: yes\n"
        "  - case: a/b/cpu-float64\n"
        "    check: gradcheck\n"
        "    code: GV101\n"
        "    total: 1\n"
        "    reason: issue 12\n"
        "  - case: a/b/cpu-float64\n"
        "    check: gradcheck\n"
        "    code: GV101\n"
        "    of: y\n"
        "    wrt: w.imag\n"
        "    total: 1000\n"
        "    reason: issue 12\n"
        "  - case: a/b/cpu-float64\n"
        "    check: gradcheck\n"
        "    code: GV101\n"
        "    of: y\n"
        "    wrt: x\n"
        "    total: 224\n"
        "    cause: missing-mask\n"
        "    reason: issue 12\n"
        "  - case: a/b/cpu-float64\n"
        "    check: gradcheck\n"
        "    code: GV102\n"
        "    total: 1\n"
        '    reason: "no: not yet"\n'
        "    expires: 2026-04-01\n"
        "  - case: b/c/cpu-float64\n"
        "    check: gradcheck\n"
        "    code: GV101\n"
        "    total: 1\n"
        "    reason: issue 12\n"
    )
    assert text.startswith("# Failures that are known: ")


def test_columns_are_written_and_read_back() -> None:
    entries = tuple(entry(wrt=name, columns=at) for name, at in (("a", ((0, 3), (1, 0))), ("b", ((),)), ("c", ())))
    text = to_yaml(Baseline(entries=entries))
    assert "    total: 1\n    columns: [[0, 3], [1, 0]]\n" in text
    assert parse(text, "b.yaml", CODES).baseline.entries == entries


def test_nothing_known() -> None:
    assert to_yaml(Baseline()).endswith("version: 2\nknown: []\n")
    assert parse(to_yaml(Baseline()), "b.yaml", CODES).baseline == Baseline()


WORDS = st.text(min_size=1).filter(lambda text: text.strip() and not any(0xD800 <= ord(c) < 0xE000 for c in text))


@pytest.mark.slow
@given(
    st.builds(
        Entry,
        case=WORDS,
        check=st.sampled_from([None, *known_checks()]),
        code=st.sampled_from(CODES),
        of=st.none() | WORDS,
        wrt=st.none() | WORDS,
        total=st.integers(1, 2**63 - 1),
        cause=st.none() | st.sampled_from(causes()),
        reason=WORDS | st.sampled_from(["null", "1e5", "a: b", "# x", "a #b", "- a", "'", '"', "\\", "true", "1" * 99]),
        expires=st.none() | st.dates(min_value=datetime.date(1000, 1, 1)),
    )
)
def test_whatever_is_written_is_read_back(made: Entry) -> None:
    text = to_yaml(Baseline(entries=(made,)))
    reading = parse(text, "b.yaml", CODES)
    assert reading.errors == ()
    assert reading.baseline.entries == (made,)
    assert to_yaml(reading.baseline) == text


GOOD = "version: 2\nknown:\n  - case: a/b/cpu\n    code: GV101\n    reason: r\n    total: 9\n"
OLD = (
    "b.yaml:1:10: version: expected 2, found 1 (its entries do not say which input is wrong, nor how many entries are;"
    " move it away, and `gradverify run PATH --write-baseline b.yaml` writes it anew)"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "b.yaml:1:1: expected one document, found 0 (it starts with `version` and `known`; "),
        (GOOD + "---\n" + GOOD, "b.yaml:1:1: expected one document, found 2"),
        ("- a", "b.yaml:1:1: expected a mapping, found a list"),
        ("version: 2", "b.yaml:1:1: known: is missing"),
        ("known: []", "b.yaml:1:1: version: is missing"),
        (GOOD.replace("version: 2", "version: 1"), OLD),
        ("version: 3\nknown: []", "b.yaml:1:10: version: expected 2, found 3 (a later gradverify wrote it)"),
        ("version: x\nknown: []", "b.yaml:1:10: version: expected a whole number, found text 'x'"),
        ("version: 2\nknow: []", "b.yaml:2:1: know: unknown key (did you mean `known`?)"),
        ("version: 2\nknown: {}", "b.yaml:2:8: known: expected a list of entries, found a mapping"),
        (GOOD.replace("code:", "coed:"), "b.yaml:4:5: known[0].coed: unknown key (did you mean `code`?)"),
        (GOOD.replace("GV101", "GV110"), "b.yaml:4:11: known[0].code: `GV110` is not known (did you mean `GV10"),
        (GOOD.replace("reason: r", "reason:"), "b.yaml:5:12: known[0].reason: expected text, found nothing"),
        (GOOD.replace("    reason: r\n", ""), "b.yaml:3:5: known[0].reason: is missing"),
        (GOOD.replace("    total: 9\n", ""), "b.yaml:3:5: known[0].total: is missing"),
        (GOOD.replace("9", "0"), "b.yaml:6:12: known[0].total: expected a whole number from 1 to "),
        (GOOD + "    wrt: 3\n", "b.yaml:7:10: known[0].wrt: expected text, found the whole number 3"),
        (GOOD + "    check: gradchek\n", "b.yaml:7:12: known[0].check: `gradchek` is not known (did you mean"),
        (GOOD + "    cause: constant-facto\n", "b.yaml:7:12: known[0].cause: there is no cause `constant-facto` (did"),
        (GOOD + "    expires: 2026-02-30\n", "b.yaml:7:14: known[0].expires: text '2026-02-30' is no date: "),
        (GOOD + "    expires: tomorrow\n", "b.yaml:7:14: known[0].expires: expected a date as 2026-12-31, found text"),
        (GOOD + "    expires: 20261231\n", "b.yaml:7:14: known[0].expires: expected a date as 2026-12-31, found the"),
        (GOOD + GOOD.partition("known:\n")[2], "b.yaml:7:5: known[1]: is there twice (first at line 3)"),
        (GOOD + "    code: GV102\n", "b.yaml:7:5: known[0]: `code` is given twice (first at line 4, column 5)"),
        ("version: 2\nknown: [", "b.yaml:3:1: not valid YAML: "),
        ("version: !!python/x 1\nknown: []", "b.yaml:1:10: version: the tag `!!python/x` is not allowed"),
    ],
)
def test_mistakes_have_places(text: str, message: str) -> None:
    reading = parse(text, "b.yaml", CODES)
    assert reading.baseline == Baseline()
    assert any(str(error).startswith(message) for error in reading.errors), [str(error) for error in reading.errors]


def test_all_mistakes_are_reported_together() -> None:
    text = "version: x\nknown:\n  - case: ''\n    code: GV1\n    total: 1\n  - 3\n"
    assert [str(error).partition(": ")[2].partition(":")[0] for error in parse(text, "b.yaml", CODES).errors] == [
        "version",
        "known[0].case",
        "known[0].code",
        "known[0].reason",
        "known[1]",
    ]


def test_a_file_that_cannot_be_read(tmp_path) -> None:
    (error,) = read_baseline(tmp_path / "b.yaml", CODES).errors
    assert str(error).endswith(f"b.yaml:1:1: no such file (--write-baseline {tmp_path}/b.yaml makes it)")


def test_a_name_with_a_blank_stands_in_quotes_where_it_is_part_of_a_command(tmp_path) -> None:
    (error,) = read_baseline(tmp_path / "my b.yaml", CODES).errors
    assert str(error).endswith(f"(--write-baseline '{tmp_path}/my b.yaml' makes it)")
    (error,) = parse("version: 1\nknown: []\n", "my b.yaml", CODES).errors
    assert "`gradverify run PATH --write-baseline 'my b.yaml'` writes it anew" in str(error)
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    (error,) = read_baseline(tmp_path / "b.yaml", CODES).errors
    assert "not UTF-8" in str(error)
