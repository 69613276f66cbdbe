"""Time a whole run beside pytest with torch's own checks: `python -m benchmarks.suite [--cases N] [-j N]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.suite_files import write_files
from benchmarks.suite_timing import Look, Timing, timed
from benchmarks.tables import table

_MOMENTS = 10  # rows of the table of memory
_MEBI = 1 << 20

_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py")
_RUN = ("-m", "gradverify", "run", "spec.yaml", "-q")


def main() -> None:
    """Write the cases, run every command once, and print the tables."""
    options = _options()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = write_files(folder, options.cases)
        jobs = () if options.jobs is None else ("-j", str(options.jobs))
        commands = {
            "pytest: gradcheck and gradgradcheck": _PYTEST,
            "gradverify run, torch's checks beside": (*_RUN, *jobs),
            "gradverify run --torch-gradcheck never": (*_RUN, *jobs, "--torch-gradcheck", "never"),
        }
        timings = {title: timed([sys.executable, *words], folder) for title, words in commands.items()}
    reference, *ours = timings.values()
    print(_times(timings, reference, count))
    for title, timing in list(timings.items())[1:]:
        print(f"\n{title}: resident memory in MiB\n{_memory(timing)}")
    print(
        f"\nratio {ours[0].seconds / reference.seconds:.2f}, without torch's {ours[1].seconds / reference.seconds:.2f}"
    )
    if any(timing.exit_code for timing in timings.values()):
        sys.exit("a command did not end with 0: its time says nothing")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time a whole run beside pytest with torch's own checks.")
    parser.add_argument("--cases", type=int, default=2000, metavar="N", help="how many cases")
    parser.add_argument("-j", "--jobs", type=int, metavar="N", help="worker processes of gradverify")
    return parser.parse_args()


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
    """Return the memory at moments that lie evenly over the run, and the peak of each kind of process."""
    step = max(len(timing.looks) / _MOMENTS, 1.0)
    chosen = [timing.looks[int(place * step)] for place in range(min(_MOMENTS, len(timing.looks)))]
    peaks = [max(sizes) for sizes in zip(*map(_sizes, timing.looks), strict=True)]
    rows = [(f"{look.seconds:.1f} s", *_sizes(look)) for look in chosen]
    return table(("after", "parent", "worker server", "largest worker"), [*rows, ("peak", *peaks)])


def _sizes(look: Look) -> tuple[int, int, int]:
    return round(look.parent / _MEBI), round(look.server / _MEBI), round(look.worker / _MEBI)


if __name__ == "__main__":
    main()
