"""Report to text: pure functions, one per format."""
