"""Which cases a changed file concerns. Files are read, and nothing is imported."""
