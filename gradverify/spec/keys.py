"""The keys of a document: how each is read, and what an editor is told about it."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, create_model

from gradverify.case import (
    CASE_DTYPES,
    DEFAULT_TIMEOUT,
    DEVICE_KINDS,
    Expectation,
    ExploreRules,
    Float32Products,
    Tolerances,
    TorchGradcheck,
)
from gradverify.catalogue import known_checks
from gradverify.spec.dims import dims
from gradverify.spec.expect import EXPECT_SCHEMA, expectation
from gradverify.spec.explore_keys import EXPLORE_SCHEMA, explore
from gradverify.spec.field import Read, list_schema, mapping_schema, one_of_schema
from gradverify.spec.limits import MAX_SAMPLES, MAX_TIMEOUT
from gradverify.spec.readers import (
    bad,
    distinct_list_of,
    expected,
    keyed,
    mapping_of_names,
    not_negative,
    one_of,
    positive,
    text,
    true_or_false,
    whole_between,
)
from gradverify.spec.wording import meant, shortened

_MAX_SEED = 2**63 - 1
_DEVICE = re.compile(rf"({'|'.join(DEVICE_KINDS)})(:[0-9]{{1,3}})?")


def seconds(value: Any) -> float:
    """Read a duration."""
    if positive(value) > MAX_TIMEOUT:
        raise bad(f"at most {MAX_TIMEOUT:,} seconds, found {value}")
    return float(value)


def device(value: Any) -> str:
    """Read the name of a device; whether this machine has it is asked later."""
    if not isinstance(value, str):
        raise expected("the name of a device", value)
    if not _DEVICE.fullmatch(value):
        near = "did you mean `cuda`?" if value.startswith("gpu") else meant(value, DEVICE_KINDS)
        hint = near or f"known: {', '.join(DEVICE_KINDS)}, each with an index if wanted: cuda:1"
        raise bad(f"`{shortened(value)}` is not a device", hint)
    return value


def draft(value: Any) -> str:
    """Read the reason why a case is not run yet; null in a case says that it is run."""
    return "" if value is None else text(value)


def tolerances(value: Any) -> Tolerances:
    """Read a mapping of rtol and atol."""
    return Tolerances(**keyed(value, {"rtol": not_negative, "atol": not_negative}))


_CHECK_LIST = Read(distinct_list_of(one_of(known_checks()), "checks"), list_schema(one_of_schema(known_checks())))
_DTYPE_LIST = Read(distinct_list_of(one_of(CASE_DTYPES), "dtypes"), list_schema(one_of_schema(CASE_DTYPES)))
_DEVICE_LIST = Read(
    distinct_list_of(device, "devices"),
    list_schema({"type": "string", "pattern": f"^{_DEVICE.pattern}$"}, "one that this machine lacks is skipped"),
)
_OUTPUT_LIST = Read(
    distinct_list_of(whole_between(0, 1_000_000), "indices of outputs"),
    list_schema({"type": "integer", "minimum": 0}, "outputs to check; every differentiable one where left out"),
)
_TARGET = Read(
    text,
    {
        "type": "string",
        "pattern": ":[^:]+$",
        "description": "what is verified: path.py:Name relative to this file, or package.module:Name",
    },
)
_DRAFT = Read(
    draft,
    {
        "type": ["string", "null"],
        "description": "the reason why a case is not run yet: it is skipped, and its function is not loaded",
    },
)
_SURROGATE = Read(
    text,
    {
        "type": "string",
        "pattern": ":[^:]+$",
        "description": "the smooth function whose derivative backward is meant to be; it takes the same arguments",
    },
)
_REFERENCE = Read(
    text,
    {
        "type": "string",
        "pattern": ":[^:]+$",
        "description": "plain code for the same outputs, compared with in float64; it takes the same arguments by name",
    },
)
_PRECISION = Read(
    one_of(Float32Products), one_of_schema(Float32Products, "of float32 matrix products; reference allows for tf32")
)
_INTERPRET = Read(
    true_or_false,
    {"type": "boolean", "description": "run cases on the CPU with Triton's interpreter (TRITON_INTERPRET=1)"},
)
_INPUTS = Read(
    mapping_of_names,
    {"type": "object", "description": "the parameters of forward in order, ctx left out"},
)
_DIMS = Read(
    dims,
    {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": 0},
        "description": "named sizes: `shape` and `size` may hold expressions of them, as [n, 2 * d]",
    },
)
_INIT = Read(mapping_of_names, {"type": "object", "description": "arguments of an nn.Module's constructor"})
_STOCHASTIC = Read(true_or_false, {"type": "boolean", "description": "forward draws random numbers: seed every call"})
_SAMPLES = Read(
    whole_between(1, MAX_SAMPLES),
    {"type": "integer", "minimum": 1, "maximum": MAX_SAMPLES, "description": "independent draws per case"},
)
_SEED = Read(whole_between(0, _MAX_SEED), {"type": "integer", "minimum": 0, "maximum": _MAX_SEED})
_TIMEOUT = Read(
    seconds,
    {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT, "description": "seconds for one case"},
)
_TOLERANCE = Read(not_negative, {"type": "number", "minimum": 0})
_TORCH = Read(one_of(TorchGradcheck), one_of_schema(TorchGradcheck, "when torch's own gradcheck runs beside ours"))
_EXPECT = Read(expectation, EXPECT_SCHEMA)
_EXPLORE = Read(explore, EXPLORE_SCHEMA)
_CHECK_TOLERANCES = Read(
    tolerances,
    mapping_schema(dict.fromkeys(("rtol", "atol"), _TOLERANCE.schema), "tolerances of this check alone"),
)


class DocumentModel(BaseModel):
    """A document, or a case merged over the keys above it; without `cases`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    function: Annotated[str, _TARGET]
    inputs: Annotated[dict[str, Any], _INPUTS]
    init: Annotated[dict[str, Any] | None, _INIT] = None
    outputs: Annotated[tuple[int, ...] | None, _OUTPUT_LIST] = None
    stochastic: Annotated[bool, _STOCHASTIC] = False
    checks: Annotated[tuple[str, ...] | None, _CHECK_LIST] = None
    dtypes: Annotated[tuple[str, ...] | None, _DTYPE_LIST] = None
    devices: Annotated[tuple[str, ...] | None, _DEVICE_LIST] = None
    samples: Annotated[int, _SAMPLES] = 1
    seed: Annotated[int | None, _SEED] = None  # None: 0, and draws depend on the file's name
    timeout: Annotated[float, _TIMEOUT] = DEFAULT_TIMEOUT
    rtol: Annotated[float | None, _TOLERANCE] = None
    atol: Annotated[float | None, _TOLERANCE] = None
    torch_gradcheck: Annotated[TorchGradcheck, _TORCH] = TorchGradcheck.SMALL
    surrogate: Annotated[str | None, _SURROGATE] = None
    reference: Annotated[str | None, _REFERENCE] = None
    precision: Annotated[Float32Products, _PRECISION] = Float32Products.FULL
    interpret: Annotated[bool, _INTERPRET] = False
    draft: Annotated[str, _DRAFT] = ""
    dims: Annotated[dict[str, int], _DIMS] = {}
    explore: Annotated[ExploreRules, _EXPLORE] = ExploreRules()
    expect: Annotated[Expectation, _EXPECT] = Expectation()


# Every known check may have tolerances of its own, under its name, unless that is a key already.
_check_fields: dict[str, Any] = {
    check: (Annotated[Tolerances | None, _CHECK_TOLERANCES], None)
    for check in known_checks()
    if check not in DocumentModel.model_fields
}
OWN_TOLERANCES = tuple(_check_fields)
Document: type[DocumentModel] = create_model("Document", __base__=DocumentModel, **_check_fields)


def check_tolerances(document: DocumentModel) -> dict[str, Tolerances]:
    """Return the tolerances of every known check: its own, and for the rest those of the document."""
    given = {check: getattr(document, check) for check in _check_fields}
    own = {check: given.get(check) or Tolerances() for check in known_checks()}
    return {
        check: Tolerances(
            rtol=document.rtol if tolerance.rtol is None else tolerance.rtol,
            atol=document.atol if tolerance.atol is None else tolerance.atol,
        )
        for check, tolerance in own.items()
    }
