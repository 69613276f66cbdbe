"""Test functions for the checks: right ones at difficult points, and wrong ones."""
