"""Memory and time of one forward and backward, of a function and of what it is compared with."""
