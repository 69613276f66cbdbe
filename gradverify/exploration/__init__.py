"""Change the inputs of a case in search of one at which its gradient is wrong."""
