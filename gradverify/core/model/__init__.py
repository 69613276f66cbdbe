"""The function under test: how it is bound to its inputs, called, recorded, and seen as a map between real vectors."""
