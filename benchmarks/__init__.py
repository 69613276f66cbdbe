"""Accuracy and cost of the checks: planted faults, right functions, error bars against exact Jacobians, times."""
