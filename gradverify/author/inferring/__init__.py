"""Inputs of a function, inferred by trying."""
