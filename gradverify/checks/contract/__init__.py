"""Rules of autograd that a comparison of Jacobians cannot check, one rule per file."""
