"""A whole block of a Jacobian at a time, as a diagnosis looks at it."""
