"""Causes of errors in blocks too large to be looked at whole, told by random sums over all of their entries."""
