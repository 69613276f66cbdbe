"""Report to text: pure functions that open no file and print nothing."""
