"""The JSON Schema for editors accepts what is read without a mistake, and refuses what is plainly wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gradverify.catalogue import known_checks
from gradverify.spec.document import compose
from gradverify.spec.schema import json_schema
from tests.spec.support import FUNCTION, TENSOR
from tests.spec.test_explore_rules import FORMS as RULES
from tests.spec.test_fuzz import GOOD
from tests.spec.test_inputs import FORMS

VALIDATOR = Draft202012Validator(json_schema())


def documents(text: str) -> list[Any]:
    return [document.plain for document in compose(text, "s.yaml").documents]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("document", documents(GOOD + "---\n" + TENSOR + "cases: {a: null}\nexpect: fail\n"))
def test_good_documents(document: Any) -> None:
    VALIDATOR.validate(document)


@pytest.mark.parametrize("text", ["{cause: straight-through}", "{verdict: fail, codes: [GV101, GV102]}", "error"])
def test_what_is_expected_of_a_check(text: str) -> None:
    VALIDATOR.validate(*documents(f"{TENSOR}expect: {{gradcheck: {text}}}\n"))


@pytest.mark.parametrize("text", ["<= 0.5 * reference", "< 64 KiB", "==0"])
def test_claims_about_bytes(text: str) -> None:
    VALIDATOR.validate(*documents(f"{TENSOR}expect: {{saved_bytes: {text}}}\n"))


@pytest.mark.parametrize("text", [text for text, _ in FORMS])
def test_every_form_of_input(text: str) -> None:
    VALIDATOR.validate(*documents(f"{FUNCTION}inputs:\n  x: {text}\n"))


@pytest.mark.parametrize("text", [text for text, _ in RULES])
def test_rules_of_a_search(text: str) -> None:
    VALIDATOR.validate(*documents(f"{TENSOR}explore: {text}\n"))


BAD = [
    "dims: {n: -1}",
    "dims: [4]",
    "explore: {size: {}}",
    "explore: {budget: 0}",
    "explore: {sizes: {n: {form: 1}}}",
    "explore: {ranges: {x: [1]}}",
    "explore: {indices: {x: {below: 0}}}",
    "explore: {choices: {x: []}}",
    "explore: {require: true}",
    "sed: 1",
    "checks: []",
    "checks: [gradchek]",
    "devices: [gpu]",
    "samples: 0",
    "expect: {gradchek: fail}",
    "expect: {gradcheck: {}}",
    "expect: {saved_bytes: 24}",
    "expect: {saved_bytes: 0.5 * reference}",
    "expect: {gradcheck: {cause: straight-trough}}",
    "expect: {gradcheck: {codes: [GV999]}}",
    "gradcheck: {rtl: 1.0}",
    "cases: {}",
    "cases: {a: {cases: {}}}",
    "cases: {a: {inputs: {x: {shpe: [2]}}}}",
    "cases: {a: {inputs: {x: {shape: [-1]}}}}",
    "cases: {a: {inputs: {x: {shape: [2], uniform: [1]}}}}",
]


@pytest.mark.parametrize("text", BAD)
def test_bad_documents(text: str) -> None:
    assert not VALIDATOR.is_valid(*documents(f"{TENSOR}{text}\n"))


def test_the_documentation_lists_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spec.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in page.partition("## Inputs")[0].splitlines() if row.startswith("| `")]
    listed = {name.strip(" `") for row in rows for name in row.split(",")}
    assert listed == set(json_schema()["properties"]) - (set(known_checks()) - {"precision", "reference"})


def test_every_known_check_may_have_tolerances() -> None:
    assert set(known_checks()) <= set(json_schema()["properties"])
