"""Causes of errors in blocks too large to be stored, tested by random projections of all their entries."""
