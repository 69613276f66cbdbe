"""Tests of the measurements in `benchmarks/`."""
