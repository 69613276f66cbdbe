"""What backward claims held against what differences say: a verdict for every entry."""
