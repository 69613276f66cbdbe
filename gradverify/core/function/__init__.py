"""The function under test: called, recorded, asked backward, sampled around its point, and its noise measured."""
