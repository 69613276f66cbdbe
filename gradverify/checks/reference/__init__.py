"""Outputs and gradients compared with those of plain code in float64, in the precision that the function runs in."""
