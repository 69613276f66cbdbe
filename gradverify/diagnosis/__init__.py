"""What pattern in the error names its cause: one cause per file or table row."""
