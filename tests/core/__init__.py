"""Tests of the numeric engine, a file for each phenomenon.

A test runs a check on right functions, which must not fail, and on functions that are wrong on purpose, which must.
Only building blocks that are pure functions are called directly: coordinates, suffix extremes, generators and plain
forwards.
"""
