"""Specs made from the code under test: what it is called with."""
