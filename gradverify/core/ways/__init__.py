"""How all entries of a Jacobian are gone through: one by one, many at a time by structure, or by random sums."""
