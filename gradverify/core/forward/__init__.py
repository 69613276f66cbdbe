"""Evaluation of the forward around the point, and the noise of its values."""
