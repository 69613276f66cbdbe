"""Code under test, watched while it runs: the conditions that it evaluates and the lines that it reaches."""
