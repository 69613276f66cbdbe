"""Infer the inputs of one function, in a worker."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from gradverify.author.inferring.attempt import Tried, attempt
from gradverify.author.inferring.choices import Subject, kinds_of
from gradverify.author.inferring.factories import annotated_class, factory_of
from gradverify.author.inferring.found import Record, Success
from gradverify.author.inferring.model import Inferred, Question, with_advice
from gradverify.author.inferring.naming import shared_names, with_sizes
from gradverify.author.inferring.roles import Kind
from gradverify.author.inferring.search import search, unmakeable
from gradverify.author.inferring.uses import Uses, undifferentiated, uses_of
from gradverify.deadline import Deadline, OutOfTime, deadline_in
from gradverify.run.load import LoadError, find
from gradverify.run.siblings import importable
from gradverify.run.signature import forward_parameters

_OTHER_DTYPES = (
    ("complex128", re.compile("complex|ComplexDouble", re.IGNORECASE)),
    ("float32", re.compile(r"float|double|half|dtype|fp\d+|scalar type", re.IGNORECASE)),
)
_NO_GPU = "active drivers"  # in what Triton raises without one
_FIRST = 20.0  # seconds for the first try
_DOUBTFUL = (
    "where backward ran, forward broadcast the inputs to more dimensions and gradients had other shapes than inputs"
)
_PLAIN_TENSOR: Mapping[str, Any] = {"shape": []}


def infer(question: Question) -> Inferred:
    """Return inputs at which forward and backward run, or why there are none."""
    try:
        with importable(question.target):
            return _infer(question, find(question.target))
    except LoadError as error:
        return Inferred(inputs={}, reason=error.problem.message)


def _infer(question: Question, function: Any) -> Inferred:
    subjects = _subjects(question, function)
    if subjects is None:
        return Inferred(inputs={}, reason="Python cannot tell what forward takes; say the inputs")
    if missing := unmakeable(subjects):
        return Inferred(inputs=_drafted(subjects), reason=_cannot_make(missing))
    dtype = question.dtype
    record = _searched(question, function, subjects, dtype)
    for other, pattern in _OTHER_DTYPES:
        if record.best is None and any(pattern.search(why) for why, _ in record.errors.most_common(5)):
            again = _searched(replace(question, seconds=question.seconds / 2), function, subjects, other)
            record, dtype = (again, other) if again.best is not None else (record, dtype)
    best = record.best if record.best is not None and record.best.has_dimensions else record.rejected or record.best
    if best is None or best.is_doubtful:
        return Inferred(inputs=_drafted(subjects), reason=_reason(subjects, record))
    return _named(question, function, best, dtype)


def _searched(question: Question, function: Any, subjects: Sequence[Subject], dtype: str) -> Record:
    """Return what trying shows. The time begins after the first try, which may import or compile something."""
    record = Record()
    limits: list[Deadline] = []

    def tried(inputs: Mapping[str, Any], table: Mapping[str, int]) -> Tried:
        limit = limits[0] if limits else deadline_in(_FIRST)
        found = attempt(question, function, with_sizes(inputs, table, ()), {}, dtype, limit)
        if not limits:
            limits.append(deadline_in(question.seconds))
        return found

    with suppress(OutOfTime):
        search(subjects, tried, record)
    return record


def _named(question: Question, function: Any, best: Success, dtype: str) -> Inferred:
    """Return the inputs, with names for the sizes that they share if other sizes run too."""
    shared = shared_names(best.inputs)
    if shared:
        inputs = with_sizes(best.inputs, best.table, shared)
        larger = {name: best.table[name] + (2 if best.table[name] % 2 == 0 else 1) for name in shared}
        if _runs(question, function, inputs, larger, dtype, repeats=best.tried.repeats):
            dims = {name: best.table[name] for name in best.table if name in shared}
            return Inferred(inputs=inputs, dims=dims, dtype=dtype)
    return Inferred(inputs=with_sizes(best.inputs, best.table, ()), dtype=dtype)


def _runs(
    question: Question, function: Any, inputs: Mapping[str, Any], dims: Mapping[str, int], dtype: str, *, repeats: bool
) -> bool:
    try:
        tried = attempt(question, function, inputs, dims, dtype, deadline_in(question.seconds))
    except OutOfTime:
        return False
    return tried.ran and (tried.repeats or not repeats)


def _subjects(question: Question, function: Any) -> tuple[Subject, ...] | None:
    """Return the parameters of forward with what is known about them; None if Python has no signature for it."""
    parameters = forward_parameters(function)
    if parameters is None:
        return None
    wanted = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [each.name for each in wanted]
    uses: Mapping[str, Uses] = dict.fromkeys(names, Uses())
    never: frozenset[int] = frozenset()
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        uses = uses_of(function.forward, names)
        base = torch.autograd.Function
        backward = function.backward if function.backward is not base.backward else function.vjp
        never = undifferentiated(backward, len(names))
    return tuple(
        Subject(
            parameter=each,
            uses=uses[each.name],
            is_first=number == 0,
            has_gradient=number not in never,
            # What a file defines has no name that a factory is imported by.
            made_by=factory_of(annotated_class(function, each)) if question.target.file is None else None,
        )
        for number, each in enumerate(wanted)
    )


def _drafted(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Return the inputs of a draft: a tensor without dimensions, or what the parameter most likely is."""
    inputs: dict[str, Any] = {}
    for each in subjects:
        if each.parameter.default is not each.parameter.empty:
            continue
        kind = next(iter(kinds_of(each)))
        inputs[each.name] = {
            Kind.OBJECT: each.made_by,
            Kind.TENSORS: [dict(_PLAIN_TENSOR)],
            Kind.FLOAT: 0.5,
            Kind.INT: 1,
            Kind.BOOL: False,
            Kind.MODULE: {"factory": "torch.nn:Tanh"},
        }.get(kind, dict(_PLAIN_TENSOR))
    return inputs


def _cannot_make(missing: Sequence[Subject]) -> str:
    names = ", ".join(each.name for each in missing)
    reads = sorted(frozenset().union(*(each.uses.foreign for each in missing)))
    annotated = next((each.parameter.annotation for each in missing if not each.uses.foreign), "")
    kind = getattr(annotated, "__name__", str(annotated))
    attributes = f"{'attribute' if len(reads) == 1 else 'attributes'} {', '.join(reads)}"
    why = f"forward reads its {attributes}" if reads else f"it is annotated as {kind}"
    return f"could not make {names}: {why}; name a `factory` that makes it"


def _reason(subjects: Sequence[Subject], record: Record) -> str:
    required = [each.name for each in subjects if each.parameter.default is each.parameter.empty]
    names = ", ".join(required or [each.name for each in subjects])
    common = [why for why, _ in record.errors.most_common()] or ["was never called"]
    furthest = max(common, key=lambda each: record.furthest.get(each, (0, 0)))
    why = next((each for each in common if _NO_GPU in each), furthest)  # only right shapes come as far as a kernel
    tries = "1 try" if record.tries == 1 else f"{record.tries:,} tries"
    if record.best is not None:
        return with_advice(f"could not infer {names}: {_DOUBTFUL}, in {tries}")
    verb = why if why.split()[0] in ("forward", "backward", "gradverify") else f"forward {why}"
    return with_advice(f"could not infer {names}: {verb}, in {tries}")
