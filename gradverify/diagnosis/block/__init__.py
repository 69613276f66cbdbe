"""What can be seen in a whole block, and what holds in a part of it."""
