"""What pytest loads wherever gradverify is installed: its options, and nothing else unless one of them is given."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gradverify.case import Exploring


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradverify", "gradients of torch")
    group.addoption("--gradverify", action="store_true", help="Collect gradverify specs: every case is a test.")
    group.addoption(
        "--gradverify-in-process",
        action="store_true",
        help="Run cases in this process, for a debugger: without time limits, and a crash ends it all.",
    )
    group.addoption(
        "--gradverify-explore",
        action="store_true",
        help="Change the inputs of each case too, in search of one at which its gradient is wrong.",
    )
    group.addoption(
        "--gradverify-budget",
        type=_tries,
        metavar="N",
        help="With --gradverify-explore: most tries of each case, in place of what its spec says.",
    )
    group.addoption(
        "--gradverify-record",
        metavar="DIR",
        help="Write specs into this folder for the calls of hand-written Functions in the tests.",
    )
    parser.addini("gradverify_explore", "Whether inputs are changed, as with --gradverify-explore.", "bool", False)
    parser.addini(
        "gradverify_files", "Patterns of the files that --gradverify takes for specs.", "args", ["*.yaml", "*.yml"]
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gradverify: a case of a gradverify spec.")
    if config.getoption("--gradverify-record"):
        from gradverify.testing.recording import record_session

        record_session(config)
    if not config.getoption("--gradverify"):
        if config.getoption("--gradverify-explore"):
            raise pytest.UsageError("--gradverify-explore is about specs; give --gradverify too, which collects them")
        return
    from gradverify.testing.bench import Bench
    from gradverify.testing.carried import Carrying
    from gradverify.testing.collecting import Collecting

    bench = Bench(in_process=config.getoption("--gradverify-in-process"), exploring=_exploring(config))
    config.add_cleanup(bench.close)
    config.pluginmanager.register(Collecting(bench, tuple(config.getini("gradverify_files"))), "gradverify-collecting")
    config.pluginmanager.register(Carrying(), "gradverify-carrying")


def _tries(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"expected a whole number of tries above zero, found {text!r}")
    return int(text)


def _exploring(config: pytest.Config) -> Exploring | None:
    from gradverify.case import Exploring

    asked = config.getoption("--gradverify-explore") or config.getini("gradverify_explore")
    budget = config.getoption("--gradverify-budget")
    if budget is not None and not asked:
        raise pytest.UsageError("--gradverify-budget says how inputs are changed; give --gradverify-explore too")
    return Exploring(budget=budget or 0) if asked else None
