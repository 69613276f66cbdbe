"""The entries of a wrong block prepared for pattern matching, and the patterns that hold in a part of them."""
