"""A claim about bytes kept for backward: `<= 0.5 * reference`, `< 64 KiB`."""

from __future__ import annotations

import math
import re
from typing import Any

from gradverify.size import MOST_MEMORY, exact_size_of
from gradverify.spec.readers import BadValueError, Issue, expected
from gradverify.spec.wording import meant_or_known, shortened
from gradverify.usage import BytesClaim, Comparison

_OTHER = "reference"
_FORMS = "a comparison as '<= 0.5 * reference' or '<= 64 KiB'"
_PARTS = re.compile(r"\s*([<>=!~]*)\s*([^*]*?)\s*(\*\s*(.*?)\s*)?", re.DOTALL)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?|\.[0-9]+")

# A claim in JSON Schema; what it compares with is checked when it is read.
BYTES_CLAIM_SCHEMA = {
    "type": "string",
    "pattern": f"^\\s*({'|'.join(Comparison)})",
    "description": "bytes kept for backward: <= 0.5 * reference (plain torch where there is none), or <= 64 KiB",
}


def bytes_claim(value: Any) -> BytesClaim:
    """Read an operator, a number, and either `* reference` or a unit; bytes without a unit."""
    if not isinstance(value, str):
        whole = isinstance(value, int | float) and not isinstance(value, bool)
        raise expected(_FORMS, value, f"write '<= {value}'" if whole else "")
    parts = _PARTS.fullmatch(value)
    assert parts is not None, "the pattern takes any text"
    sign, amount, product, name = parts.groups()
    if not sign:
        raise expected(_FORMS, value, f"write '<= {value.strip()}'" if product is not None else "")
    issues = [] if sign in tuple(Comparison) else [_no_operator(sign)]
    issues += [] if product is None or name == _OTHER else [_not_reference(name)]
    factor, size = (_factor(amount), None) if product is not None else (None, exact_size_of(amount))
    if not _is_limit(factor if product is not None else size):
        issues.append(_no_amount(amount, product))
    if issues:
        raise BadValueError(*issues)
    return BytesClaim(written=" ".join(value.split()), comparison=Comparison(sign), size=size, factor=factor)


def _factor(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _is_limit(amount: float | None) -> bool:
    return amount is not None and math.isfinite(amount) and amount <= MOST_MEMORY


def _no_operator(sign: str) -> Issue:
    return Issue(problem=f"`{shortened(sign)}` is not known", hint=f"known: {', '.join(Comparison)}")


def _not_reference(name: str) -> Issue:
    return Issue(problem=f"after `*` comes `{_OTHER}`, found `{shortened(name)}`", hint=meant_or_known(name, (_OTHER,)))


def _no_amount(amount: str, product: str | None) -> Issue:
    found = f"`{shortened(amount)}`" if amount else "nothing"
    if product is not None:
        return Issue(problem=f"expected a number before `*`, found {found}")
    return Issue(problem=f"expected a number of bytes, found {found}", hint=_near(amount))


def _near(amount: str) -> str:
    """Return what may be meant by an amount that is no number of bytes."""
    factor = _factor(amount.removesuffix(_OTHER).strip() or "1") if amount.endswith(_OTHER) else None
    if factor is not None:
        return f"did you mean `{factor:g} * {_OTHER}`?"
    share = _factor(amount.removesuffix("%").strip()) if amount.endswith("%") else None
    return f"did you mean `{share / 100:g} * {_OTHER}`?" if share is not None else "units are B, KiB, MiB, GiB and TiB"
