"""Failures that are known: a file beside the specs that says which, why, and until when."""
