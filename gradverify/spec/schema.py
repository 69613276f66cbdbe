"""The spec language as a JSON Schema, for editors: drawn from the models that read it."""

from __future__ import annotations

from typing import Any

from gradverify.case import DEVICE_KINDS
from gradverify.spec.field import mapping_schema, one_of_schema
from gradverify.spec.keys import Document
from gradverify.spec.tensor_keys import TENSOR_DTYPES, TensorModel

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema of one document; what needs more than one key to judge is left to `gradverify` itself."""
    document = Document.model_json_schema()
    keys = {name: _without_title(schema) for name, schema in document["properties"].items()}
    keys["inputs"] = {**keys["inputs"], "additionalProperties": {"$ref": "#/$defs/input"}}
    case = {"type": ["object", "null"], "properties": keys, "additionalProperties": False}
    cases = {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/case"},
        "minProperties": 1,
        "description": "each entry is merged over the keys above",
    }
    return {
        "$schema": _DIALECT,
        "title": "gradverify spec",
        "type": "object",
        "properties": {**keys, "cases": cases},
        "additionalProperties": False,
        "anyOf": [{"required": ["cases"]}, {"required": ["function", "inputs"]}],
        "$defs": {"input": _input(), "tensor": _tensor(), "case": case, "plain": _plain()},
    }


def _input() -> dict[str, Any]:
    arguments = (
        {"dtype": one_of_schema(TENSOR_DTYPES)},
        {"size": {"type": "array", "items": {"type": ["integer", "string"]}}},
        {"tuple": {"type": "array", "items": {"$ref": "#/$defs/plain"}}},
        {"device": {"type": "string", "pattern": f"^(case|({'|'.join(DEVICE_KINDS)})(:[0-9]{{1,3}})?)$"}},
    )
    forms = (mapping_schema(argument) for argument in arguments)
    tensors = {"type": "array", "items": {"$ref": "#/$defs/tensor"}}
    return {"anyOf": [{"$ref": "#/$defs/tensor"}, *forms, tensors, {"$ref": "#/$defs/plain"}]}


def _tensor() -> dict[str, Any]:
    schema = TensorModel.model_json_schema()
    keys = {name: _without_title(entry) for name, entry in schema["properties"].items()}
    return {"type": "object", "properties": keys, "additionalProperties": False, "minProperties": 1}


def _plain() -> dict[str, Any]:
    return {"type": ["null", "boolean", "number", "string", "array"], "items": {"$ref": "#/$defs/plain"}}


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: entry for key, entry in schema.items() if key not in ("title", "default")}
