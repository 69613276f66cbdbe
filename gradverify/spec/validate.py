"""A pydantic model applied to plain values, with our own words for what pydantic finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gradverify.spec.readers import BadValueError, Issue
from gradverify.spec.wording import found, meant_or_known, misspelt

ModelT = TypeVar("ModelT", bound=BaseModel)

_STANDS_FOR = {
    "function": "what is verified: path.py:Name or package.module:Name",
    "inputs": "the parameters of forward with their values",
}


def validate(model: type[ModelT], plain: dict[str, Any], others: tuple[str, ...] = ()) -> ModelT:
    """Return the mapping as a model; raises BadValueError with everything that is wrong with it.

    `others` are keys that are known too, and were read already.
    """
    try:
        return model.model_validate(plain)
    except ValidationError as raised:
        details = raised.errors(include_url=False, include_input=False)
        known = (*model.model_fields, *others)
        raise BadValueError(*(issue for detail in details for issue in _issues(detail, known, plain))) from None


def missing(key: str) -> Issue:
    """Return the issue that a required key of a document is not there."""
    return Issue(at=(key,), problem="is missing", hint=_STANDS_FOR.get(key, ""))


def _issues(detail: Any, known: tuple[str, ...], plain: dict[str, Any]) -> Iterator[Issue]:
    loc, kind = detail["loc"], detail["type"]
    reason = detail.get("ctx", {}).get("error")
    if kind == "extra_forbidden":
        yield Issue(at=loc, on_key=True, problem="unknown key", hint=meant_or_known(str(loc[-1]), known))
    elif kind == "missing":
        if not misspelt(str(loc[-1]), plain, known):
            yield missing(str(loc[-1]))
    elif isinstance(reason, BadValueError):
        yield from (replace(issue, at=(*loc, *issue.at)) for issue in reason.issues)
    else:  # nothing else is expected of our models; a plain sentence all the same
        yield Issue(at=loc, problem=f"cannot be {found(plain.get(str(loc[0])))}")
