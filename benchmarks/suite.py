"""Time a whole run beside pytest with torch's own checks: `python -m benchmarks.suite [--cases N] [-j N] [--repeat N]`.

The commands take turns, so that a slow period of the machine affects all of them. A pytest file uses one core and a run
all of them, so the ratio depends on how independent the cores are: two threads of one core are not two cores. The time
of two pytest files at once measures this. On independent cores it equals the time of one.

gradverify is compiled to bytecode first, as pip does with what it installs. Otherwise PYTHONDONTWRITEBYTECODE would let
every process of a run compile it again, 0.5 s in all, but not torch and pytest.
"""

from __future__ import annotations

import argparse
import compileall
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import gradverify
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.plain_table import table
from benchmarks.record import Row, Standing, Total
from benchmarks.suite_files import write_files
from benchmarks.suite_timing import MemorySample, Timing, timed

_MEMORY_ROWS = 10  # rows of the memory table
_MEBIBYTE = 1 << 20

_ALONE, _TWICE = "pytest: gradcheck and gradgradcheck", "two of these at once"
_WITH_TORCH, _WITHOUT_TORCH = "gradverify run, torch's checks beside", "gradverify run --torch-gradcheck never"
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py")
_RUN = ("-m", "gradverify", "run", "spec.yaml", "-q")


def main() -> None:
    """Write the cases, run every command in turn, and print the tables."""
    options = _options()
    compileall.compile_dir(Path(gradverify.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = write_files(folder, options.cases)
        jobs = () if options.jobs is None else ("-j", str(options.jobs))
        commands: dict[str, tuple[tuple[str, ...], int]] = {
            _ALONE: (_PYTEST, 1),
            _TWICE: (_PYTEST, 2),
            _WITH_TORCH: ((*_RUN, *jobs), 1),
            _WITHOUT_TORCH: ((*_RUN, *jobs, "--torch-gradcheck", "never"), 1),
        }
        rounds = [
            {title: timed([sys.executable, *words], folder, copies) for title, (words, copies) in commands.items()}
            for _ in range(options.repeat)
        ]
    for timings in rounds:
        print(f"{_times(timings, timings[_ALONE], count)}\n")
    for title in (_WITH_TORCH, _WITHOUT_TORCH):
        print(f"{title}: resident memory in MiB\n{_memory(rounds[-1][title])}\n")
    print(f"ratio {_ratios(rounds, _WITH_TORCH, _ALONE)}, without torch's {_ratios(rounds, _WITHOUT_TORCH, _ALONE)}")
    print(f"two at once take {_ratios(rounds, _TWICE, _ALONE)} times as long as one: 1 on two cores, 2 on one")
    print(f"ratio to one of two at once, whose core is as disturbed as ours: {_ratios(rounds, _WITH_TORCH, _TWICE)}")
    save("suite", options, _rows(rounds), [Total(name="cases", value=count)])
    if any(timing.exit_code for timings in rounds for timing in timings.values()):
        sys.exit("a command did not end with 0: its time says nothing")


def _rows(rounds: Sequence[dict[str, Timing]]) -> Iterator[Row]:
    """Yield a row per command, with the median of its time relative to torch's own checks."""
    for title in rounds[0]:
        failed = any(timings[title].exit_code for timings in rounds)
        yield Row(
            key=title,
            standing=Standing.ERROR if failed else Standing.RIGHT,
            verdict="failed" if failed else "ended with 0",
            cost=statistics.median(_sorted_ratios(rounds, title, _ALONE)),
            against=_ALONE,
        )


def _sorted_ratios(rounds: Sequence[dict[str, Timing]], title: str, reference: str) -> list[float]:
    return sorted(timings[title].seconds / timings[reference].seconds for timings in rounds)


def _ratios(rounds: Sequence[dict[str, Timing]], title: str, reference: str) -> str:
    """Return the median ratio of two commands' times, with its range if there are several rounds."""
    ratios = _sorted_ratios(rounds, title, reference)
    spread = f" ({ratios[0]:.2f} to {ratios[-1]:.2f} in {len(ratios)} rounds)" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"


def _options() -> argparse.Namespace:
    parser = parser_of("Time a whole run beside pytest with torch's own checks.")
    parser.add_argument("--cases", type=int, default=2000, metavar="N", help="how many cases")
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="worker processes of gradverify")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="rounds, of which the median counts")
    return parsed_options(parser)


def _times(timings: dict[str, Timing], reference: Timing, count: int) -> str:
    rows = [
        (
            title,
            timing.exit_code,
            f"{timing.seconds:.1f}",
            f"{timing.processor:.1f}",
            f"{1000 * timing.seconds / count:.1f}",
            f"{timing.seconds / reference.seconds:.2f}",
        )
        for title, timing in timings.items()
    ]
    return table((f"{count} cases", "exit", "wall s", "cpu s", "ms a case", "ratio"), rows)


def _memory(timing: Timing) -> str:
    """Return a table of memory at times spread evenly over the run, and the peak of each kind of process."""
    step = max(len(timing.memory_samples) / _MEMORY_ROWS, 1.0)
    chosen = [
        timing.memory_samples[int(place * step)] for place in range(min(_MEMORY_ROWS, len(timing.memory_samples)))
    ]
    peaks = [max(sizes) for sizes in zip(*map(_sizes, timing.memory_samples), strict=True)]
    rows = [(f"{look.seconds:.1f} s", *_sizes(look)) for look in chosen]
    return table(("after", "parent", "worker server", "largest worker"), [*rows, ("peak", *peaks)])


def _sizes(look: MemorySample) -> tuple[int, int, int]:
    return round(look.parent / _MEBIBYTE), round(look.server / _MEBIBYTE), round(look.worker / _MEBIBYTE)


if __name__ == "__main__":
    main()
