"""Wrong blocks of a Jacobian too large to keep: random sums over their entries, and small problems cut out of them."""
