"""Derivatives of a forward, with error bars, from finite differences: smooth points, kinks, jumps and edges."""
