"""Specs to cases: every combination of device, dtype and sample, each with an id and the key of its draws."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradverify.case import (
    DEFAULT_DEVICES,
    DEFAULT_DTYPES,
    Case,
    Expectation,
    Settings,
    TorchGradcheck,
    default_checks,
)
from gradverify.errors import SpecError, Where
from gradverify.result import Verdict, worst
from gradverify.spec.identity import NO_FILE
from gradverify.spec.limits import MAX_CASES
from gradverify.spec.model import Spec, SpecCase
from gradverify.spec.node import Place, error
from gradverify.spec.wording import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the command line asks for.

    A list narrows the list that a spec gives, and replaces the one that a spec leaves to the default.
    """

    checks: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    seed: int | None = None
    samples: int | None = None
    timeout: float | None = None  # seconds
    torch_gradcheck: TorchGradcheck | None = None
    max_elements: int = Settings().max_elements  # kept per finding
    max_evaluations: int = Settings().max_evaluations  # calls that the search for wrong entries may take
    timed: bool = False


def expand(specs: Sequence[Spec], overrides: Overrides | None = None) -> tuple[Case, ...]:
    """Return the cases in the order of the specs; raises SpecError where the overrides make too many of one file."""
    asked = overrides or Overrides()
    cases: list[Case] = []
    for _, group in itertools.groupby(specs, key=lambda spec: spec.name):
        pairs = [(spec, case) for spec in group for case in spec.cases]
        count = sum(_count(case, asked) for _, case in pairs)
        if count > MAX_CASES:
            raise _too_many(pairs[0][0], count)
        cases += itertools.chain.from_iterable(_cases(spec, case, asked) for spec, case in pairs)
    return tuple(cases)


def case_key(spec: Spec, case: SpecCase) -> str:
    """Return what the draw keys of a case have in common: it depends on neither other files nor on devices.

    If a seed is written, it does not depend on the file's name either: `check` takes its place.
    """
    return f"{spec.stem if case.seed is None else NO_FILE}/{case.name}"


def _cases(spec: Spec, case: SpecCase, asked: Overrides) -> Iterator[Case]:
    for device, dtype in itertools.product(_devices(case, asked), _dtypes(case, asked)):
        default = default_checks(has_reference=case.reference is not None, dtype=dtype)
        checks = _narrowed(case.checks, default, asked.checks)
        if not checks:
            return
        for sample in range(_samples(case, asked)):
            suffix = f"-sample{sample}" if _samples(case, asked) > 1 else ""
            yield Case(
                id=f"{spec.name}/{case.name}/{device}-{dtype}{suffix}",
                draw_key=f"{case_key(spec, case)}/sample{sample}",
                spec=spec.file,
                line=case.line,
                draft=case.draft,
                target=case.target,
                surrogate=case.surrogate,
                reference=case.reference,
                init=case.init,
                inputs=case.inputs,
                outputs=case.outputs,
                outputs_at="" if case.outputs is None else str(case.places["outputs"].where),
                stochastic=case.stochastic,
                checks=checks,
                tolerances={check: case.tolerances[check] for check in checks},
                dtype=dtype,
                device=device,
                sample=sample,
                seed=(case.seed or 0) if asked.seed is None else asked.seed,
                timeout=case.timeout if asked.timeout is None else asked.timeout,
                torch_gradcheck=case.torch_gradcheck if asked.torch_gradcheck is None else asked.torch_gradcheck,
                tf32=case.tf32,
                interpret=case.interpret and device == "cpu",
                max_elements=asked.max_elements,
                max_evaluations=asked.max_evaluations,
                timed=asked.timed,
                dims=case.dims,
                explore=case.explore,
                expect=_expectation(case.expect, checks),
            )


def _expectation(written: Expectation, checks: tuple[str, ...]) -> Expectation:
    """Return what is expected of the checks that run: a cause only where one of them is to fail."""
    if not written.checks:
        return written
    named = {check: written.checks[check] for check in checks if check in written.checks}
    verdict = worst(named[check].verdict if check in named else Verdict.PASS for check in checks)
    cause = written.cause if verdict is Verdict.FAIL else None
    return Expectation(verdict=verdict, checks=named, cause=cause, saved_bytes=written.saved_bytes)


def _narrowed(
    given: tuple[str, ...] | None, default: tuple[str, ...], asked: tuple[str, ...] | None
) -> tuple[str, ...]:
    if asked is None:
        return given or default
    wanted = tuple(dict.fromkeys(asked))
    return wanted if given is None else tuple(name for name in given if name in wanted)


def _devices(case: SpecCase, asked: Overrides) -> tuple[str, ...]:
    return _narrowed(case.devices, DEFAULT_DEVICES, asked.devices)


def _dtypes(case: SpecCase, asked: Overrides) -> tuple[str, ...]:
    return _narrowed(case.dtypes, DEFAULT_DTYPES, asked.dtypes)


def _samples(case: SpecCase, asked: Overrides) -> int:
    return case.samples if asked.samples is None else asked.samples


def _count(case: SpecCase, asked: Overrides) -> int:
    return _samples(case, asked) * len(_devices(case, asked)) * len(_dtypes(case, asked))


def _too_many(spec: Spec, count: int) -> SpecError:
    place = Place(where=Where(file=visible(spec.file)), path="")
    return error(place, f"expands to {count:,} cases, at most {MAX_CASES:,} are allowed in one file", "fewer samples")
