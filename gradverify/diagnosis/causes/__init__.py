"""One pattern per file: what it looks like in a block, and what is said of it."""
