"""Input values from a description and a seed."""
