"""Wrong blocks of a Jacobian as a diagnosis needs them: all entries, or random sums over them."""
