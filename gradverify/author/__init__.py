"""Specs that are made instead of written: of every function of a package, and of what happens in a program."""
