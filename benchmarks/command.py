"""Common parts of the benchmarks' command lines: the option `--json`, one thread, no warnings."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable
from pathlib import Path

import torch

from benchmarks.record import Row, Total, run_of, write_run


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the option `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row and the totals to FILE")
    return parser


def add_operator_options(parser: argparse.ArgumentParser, samples: int) -> None:
    """Add the options that select torch's operators; `samples` is the default number of inputs per operator."""
    parser.add_argument("-k", default="", metavar="TEXT", help="operators whose name contains TEXT")
    parser.add_argument("--samples", type=int, default=samples, help="inputs of each operator, at most")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one operator and input in N")
    parser.add_argument("--seed", type=int, default=0)


def parsed_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line, set torch to one thread and ignore warnings; returns the options."""
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return options


def save(benchmark: str, options: argparse.Namespace, rows: Iterable[Row], totals: Iterable[Total] = ()) -> None:
    """Write the rows and totals to the file given by `--json`, if any."""
    if options.json is not None:
        chosen = {name: value for name, value in vars(options).items() if not isinstance(value, Path | None)}
        write_run(options.json, run_of(benchmark, chosen, rows, totals))
