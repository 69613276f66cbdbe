"""Which entries of the Jacobian are compared and in what order: dense, by sparsity, entrywise, or by random sums."""
