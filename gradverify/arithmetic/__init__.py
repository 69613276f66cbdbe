"""Arithmetic of torch with more rounding than float64 has."""
