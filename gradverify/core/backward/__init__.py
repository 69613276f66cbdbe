"""Backward's claim: vector-Jacobian products, one at a time, in batches, and for whole rows of the Jacobian."""
