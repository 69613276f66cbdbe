"""The analytic Jacobian: vector-Jacobian products, one at a time or in batches, and whole rows."""
