"""Specs as tests of pytest: a file of cases is a file of tests."""
