"""YAML text to nodes: what a value is, and where it stands."""

from __future__ import annotations

import pytest
import yaml

from gradverify.spec import document
from gradverify.spec.document import compose
from gradverify.spec.node import key_place, value_place
from tests.spec.test_fuzz import GOOD


def test_every_key_and_every_value_has_its_place() -> None:
    (root,) = compose("a: 1\nb:\n  - x\n  - {c: é, d: 2}\n", "s.yaml").documents
    assert root.plain == {"a": 1, "b": ["x", {"c": "é", "d": 2}]}
    assert str(key_place(root, ("b",)).where) == "s.yaml:2:1"
    assert str(value_place(root, ("b",)).where) == "s.yaml:3:3"
    assert str(value_place(root, ("b", 1, "d")).where) == "s.yaml:4:15"
    assert value_place(root, ("b", 1, "d")).path == "b[1].d"


def test_what_is_absent_stands_where_it_is_missing() -> None:
    (root,) = compose("\n a: {b: 1}\n", "s.yaml").documents
    place = value_place(root, ("a", "c"))
    assert (str(place.where), place.path) == ("s.yaml:2:5", "a.c")


def test_documents_without_anything_are_left_out() -> None:
    documents = compose("---\n---\na: 1\n---\n~\n...\n# end\n", "s.yaml").documents
    assert [root.plain for root in documents] == [{"a": 1}]


def test_documents_before_a_syntax_error_are_kept() -> None:
    composed = compose("a: 1\n---\nb: [\n", "s.yaml")
    assert [root.plain for root in composed.documents] == [{"a": 1}]
    assert len(composed.errors) == 1


def test_words_of_yaml_1_1_are_read_as_they_are_written() -> None:
    (root,) = compose("no: off\non: yes\nnull_: ~\ny: 010\n'null': \"1\"\n", "s.yaml").documents
    assert root.plain == {"no": "off", "on": "yes", "null_": None, "y": 10, "null": "1"}


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with_libyaml = compose(GOOD, "s.yaml")
    monkeypatch.setattr(document, "_Loader", yaml.SafeLoader)
    without = compose(GOOD, "s.yaml")
    assert [root.plain for root in without.documents] == [root.plain for root in with_libyaml.documents]
    assert compose("a: [1\n", "s.yaml").errors
    assert compose("[" * 1000, "s.yaml").errors
