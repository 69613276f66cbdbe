"""The package under test has tests of its own, which run where it is installed."""

collect_ignore = ["package"]
