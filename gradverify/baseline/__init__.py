"""The baseline: a file of known failures, each with a reason and an optional expiry."""
