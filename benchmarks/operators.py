"""Judge torch's own operators at torch's own test inputs: `python -m benchmarks.operators [-k TEXT] [--check NAME]`.

Operators and inputs are those of torch's test suite, so that no favourable choice of point hides a false alarm. Needs
`expecttest`, which torch's testing module imports.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.command import add_operator_options, parsed_options, parser_of, save
from benchmarks.record import Row, Standing, judged_row, standing_of_right
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import CHECKS, run_check
from gradverify.core.model.problem import Problem, bind
from gradverify.evidence import undiagnosed

_LARGEST = 20_000  # a tenth of the largest n² that is judged, n the number of input entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One operator at one of its sample inputs."""

    name: str
    problem: Problem


def main() -> None:
    """Judge the operators that the command line selects and print every result but pass and skip."""
    options = _options()
    rows: list[Row] = []
    counts: Counter[tuple[str, str]] = Counter()
    begin = time.perf_counter()
    for number, subject in enumerate(subjects(options.k, options.samples, options.dtype, options.seed)):
        if number % options.every:
            continue
        for check in options.check:
            begun = time.perf_counter()
            row = _judged(check, subject, options.seed)
            took = time.perf_counter() - begun
            rows.append(row)
            counts[check, row.verdict] += 1
            if row.verdict not in ("pass", "skip"):
                print(f"{row.verdict:12} {check:13} {subject.name}: {row.note}", flush=True)
            if took > options.slow:
                print(f"{'slow':12} {check:13} {subject.name}: {took:.1f} s", flush=True)
    for (check, verdict), count in sorted(counts.items()):
        print(f"{check:13} {verdict:12} {count}")
    print(f"seed {options.seed}, {time.perf_counter() - begin:.0f} s")
    save("operators", options, rows)


def _options() -> argparse.Namespace:
    parser = parser_of("Judge torch's own operators at torch's own test inputs.")
    add_operator_options(parser, samples=4)
    parser.add_argument("--check", action="append", choices=[check.name for check in CHECKS], help="default: gradcheck")
    parser.add_argument(
        "--dtype", default="float64", choices=("float64", "complex128", "float32", "bfloat16", "float16")
    )
    parser.add_argument("--slow", type=float, default=5.0, help="seconds from which on a check is worth a line")
    options = parsed_options(parser)
    options.check = options.check or ["gradcheck"]
    return options


def subjects(text: str, samples: int, dtype: str, seed: int) -> Iterator[Subject]:
    """Yield torch's operators whose name contains `text`, with at most `samples` inputs each."""
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError as error:
        sys.exit(f"torch's operator tests cannot be imported: {error}")
    wanted: torch.dtype = getattr(torch, dtype)
    for operator in op_db:
        if text not in operator.name or not operator.supports_autograd or wanted not in operator.dtypes:
            continue
        torch.manual_seed(seed)
        try:
            found = list(operator.sample_inputs("cpu", wanted, requires_grad=True))
        except Exception as error:  # torch's own tests may raise anything on this machine
            print(f"{'no inputs':12} {operator.name}: {error}")
            continue
        step = max(1, len(found) // samples)
        for place in range(0, len(found), step)[:samples]:
            yield from _subject(operator, found[place], place)


def _subject(operator: Any, sample: Any, place: int) -> Iterator[Subject]:
    name = f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else operator.name
    args = (sample.input, *sample.args)
    names = ["input", *(f"args[{k}]" for k in range(len(sample.args)))]

    def function(*tensors: Any, **keywords: Any) -> Any:
        out = operator.gradcheck_wrapper(operator.get_op(), *tensors, **keywords)
        return sample.output_process_fn_grad(out)

    problem = bind(function, args, names=names, kwargs=sample.kwargs, name=name)
    inputs = sum(primal.tensor.numel() for primal in problem.primals)
    if problem.primals and inputs and inputs * inputs <= _LARGEST * 10:
        yield Subject(name=f"{name}[{place}]", problem=problem)


def _judged(check: str, subject: Subject, seed: int) -> Row:
    """Return the row of one check; `reference` holds the operator against itself in float64."""
    settings, key = Settings(seed=seed, torch_gradcheck=TorchGradcheck.NEVER), f"{subject.name}, {check}"
    problem = subject.problem
    if check == "reference":
        problem = replace(problem, reference=replace(problem, function=problem.finer or problem.function))
    try:
        result = run_check(check, problem, settings, undiagnosed)
    except Exception as error:  # a defect of ours, or an error of the operator: both get a row
        note = f"{type(error).__name__}: {error}".splitlines()[0]
        return Row(key=key, standing=Standing.ERROR, verdict="raised", note=note)
    return judged_row(key, result, standing_of_right(result.verdict))


if __name__ == "__main__":
    main()
