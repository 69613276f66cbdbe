"""Calls of hand-written Functions, observed while a command runs, as specs."""
