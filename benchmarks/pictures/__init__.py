"""The pictures of the README and of docs/numerics, made from real runs."""
