"""How often the checks are right: planted faults, right functions, and error bars against exact Jacobians."""
