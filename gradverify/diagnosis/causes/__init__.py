"""Patterns of wrong gradients: each function returns a Diagnosis, or None if its pattern does not explain the error."""
