"""Functions of what a factory makes."""


def first(xs):
    return xs[0] * xs[0] + xs[1]


def applied(x, module):
    return module(x)
