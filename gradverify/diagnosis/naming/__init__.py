"""How places, numbers and regions are said."""
