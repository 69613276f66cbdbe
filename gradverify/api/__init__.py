"""The Python interface: one function per file, and what they share."""
