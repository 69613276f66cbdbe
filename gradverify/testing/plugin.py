"""What pytest loads wherever gradverify is installed: three options, and nothing else unless one is given."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gradverify", "gradients of torch")
    group.addoption("--gradverify", action="store_true", help="Collect gradverify specs: every case is a test.")
    group.addoption(
        "--gradverify-in-process",
        action="store_true",
        help="Run cases in this process, for a debugger: without time limits, and a crash ends it all.",
    )
    parser.addini(
        "gradverify_files", "Patterns of the files that --gradverify takes for specs.", "args", ["*.yaml", "*.yml"]
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gradverify: a case of a gradverify spec.")
    if not config.getoption("--gradverify"):
        return
    from gradverify.testing.bench import Bench
    from gradverify.testing.carried import Carrying
    from gradverify.testing.collecting import Collecting

    bench = Bench(in_process=config.getoption("--gradverify-in-process"))
    config.add_cleanup(bench.close)
    config.pluginmanager.register(Collecting(bench, tuple(config.getini("gradverify_files"))), "gradverify-collecting")
    config.pluginmanager.register(Carrying(), "gradverify-carrying")
