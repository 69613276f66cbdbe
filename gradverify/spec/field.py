"""How a field of a pydantic model is read, and what an editor is told about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from gradverify.spec.readers import Reader


@dataclass(frozen=True, slots=True)
class Read:
    """Marks a field: its reader takes the place of pydantic's own conversion and wording."""

    reader: Reader[Any]
    schema: Mapping[str, Any] = field(hash=False)  # the field in JSON Schema

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.reader)

    def __get_pydantic_json_schema__(self, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


def one_of_schema(names: Any, says: str = "") -> dict[str, Any]:
    """Return the JSON Schema of one of these names."""
    return _described({"enum": [str(name) for name in names]}, says)


def list_schema(items: Mapping[str, Any], says: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a list of distinct entries that is not empty."""
    return _described({"type": "array", "items": dict(items), "minItems": 1, "uniqueItems": True}, says)


def pair_schema(kind: str, says: str) -> dict[str, Any]:
    """Return the JSON Schema of a list of two numbers; `kind` is "number" or "integer"."""
    return _described({"type": "array", "items": {"type": kind}, "minItems": 2, "maxItems": 2}, says)


def mapping_schema(properties: Mapping[str, Any], says: str = "") -> dict[str, Any]:
    """Return the JSON Schema of a mapping with some of these keys and no other."""
    shape = {"type": "object", "properties": dict(properties), "additionalProperties": False, "minProperties": 1}
    return _described(shape, says)


def _described(schema: dict[str, Any], says: str) -> dict[str, Any]:
    return {**schema, "description": says} if says else schema
