"""Ten functions with gradients written by hand, each of another kind, for the tests of the ways to a spec."""
