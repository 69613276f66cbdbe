"""What autograd relies on and a comparison of Jacobians cannot see: one broken promise per file."""
