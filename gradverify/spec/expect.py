"""The key `expect`: a verdict of the case, or what is expected of single checks."""

from __future__ import annotations

from typing import Any

from gradverify.case import Expectation
from gradverify.catalogue import causes, codes, known_checks
from gradverify.result import ExpectedCheck, Verdict
from gradverify.spec.claim import BYTES_CLAIM_SCHEMA, bytes_claim
from gradverify.spec.field import list_schema, mapping_schema, one_of_schema
from gradverify.spec.readers import BadValueError, Issue, Reader, bad, distinct_list_of, expected, keyed, one_of, text
from gradverify.spec.wording import found, meant, shortened

_OF_A_CASE = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR)
_FORMS = "a verdict, or a mapping of verdict, cause and codes"
_EXACT_SCHEMA = mapping_schema(
    {
        "verdict": one_of_schema(Verdict, "fail where left out"),
        "cause": one_of_schema(causes(), "of every wrong finding"),
        "codes": list_schema(one_of_schema(codes()), "of the check's findings: all of them and no other"),
    }
)
_CHECK_SCHEMA = {"oneOf": [one_of_schema(Verdict), _EXACT_SCHEMA]}

# `expect` in JSON Schema.
EXPECT_SCHEMA = {
    "oneOf": [
        one_of_schema(_OF_A_CASE),
        mapping_schema(
            {
                **dict.fromkeys(known_checks(), _CHECK_SCHEMA),
                "cause": one_of_schema(causes()),
                "saved_bytes": BYTES_CLAIM_SCHEMA,
            }
        ),
    ]
}


def expectation(value: Any) -> Expectation:
    """Read a verdict, or a mapping of checks to what is expected of each."""
    if not isinstance(value, dict):
        return Expectation(verdict=one_of(_OF_A_CASE)(value))
    if not value:
        raise bad("expected a verdict, or a mapping of checks to verdicts, found an empty mapping")
    readers = {**{check: _of_check(check) for check in known_checks()}, "cause": cause_name, "saved_bytes": bytes_claim}
    parts = keyed(value, readers)
    cause, saved_bytes = parts.pop("cause", None), parts.pop("saved_bytes", None)
    # Only a check that fails names a cause.
    verdict = Verdict.FAIL if cause is not None and not parts else Verdict.PASS
    return Expectation(verdict=verdict, checks=parts, cause=cause, saved_bytes=saved_bytes)


def cause_name(value: Any) -> str:
    """Read the name of a cause that the catalogue has."""
    known = causes()
    if text(value) not in known:
        hint = meant(value, known) or "`gradverify explain` lists the causes"
        raise bad(f"there is no cause `{shortened(value)}`", hint)
    return str(value)


def _of_check(check: str) -> Reader[ExpectedCheck]:
    """Return a reader of what is expected of this check."""

    def read(value: Any) -> ExpectedCheck:
        if isinstance(value, str):
            return ExpectedCheck(check=check, verdict=one_of(Verdict)(value))
        if not isinstance(value, dict):
            raise expected(_FORMS, value)
        if not value:
            raise bad(f"expected {_FORMS}, found an empty mapping")
        parts = keyed(value, {"verdict": one_of(Verdict), "cause": cause_name, "codes": _codes})
        verdict = parts.pop("verdict", Verdict.FAIL)
        _refuse_contradiction(verdict, parts)
        return ExpectedCheck(check=check, verdict=verdict, **parts)

    return read


def _refuse_contradiction(verdict: Verdict, parts: dict[str, Any]) -> None:
    """Raise where the check's verdict leaves no finding that could have the cause or the codes."""
    issues = []
    if "cause" in parts and verdict is not Verdict.FAIL:
        issues.append(Issue(at=("cause",), on_key=True, problem=f"a check with verdict {verdict.value} names no cause"))
    if "codes" in parts and verdict in (Verdict.PASS, Verdict.SKIP):
        problem = f"a check with verdict {verdict.value} has no finding that `codes` could name"
        issues.append(Issue(at=("codes",), on_key=True, problem=problem))
    if issues:
        raise BadValueError(*issues)


def _code(value: Any) -> str:
    """Read a code that the catalogue has."""
    known = codes()
    if not isinstance(value, str):
        raise bad(f"expected a code such as {known[0]}, found {found(value)}")
    if value not in known:
        hint = meant(value.upper(), known) or "`gradverify explain` lists the codes"
        raise bad(f"there is no code `{shortened(value)}`", hint)
    return value


_codes = distinct_list_of(_code, "codes")
