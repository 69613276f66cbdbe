"""Explanations of a mismatch other than a wrong gradient, one per file."""
