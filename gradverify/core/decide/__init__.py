"""Backward's claim compared with the numeric derivative, entry by entry: tolerance, verdict, comparison."""
