"""A module that raises while it is imported."""

ready = 1
broken = 1 / (ready - 1)


def square(x):
    return x * x
