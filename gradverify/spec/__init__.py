"""YAML text to frozen cases; every mistake with its place."""
