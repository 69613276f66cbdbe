"""Forward evaluated at points around the one that is judged, and how exactly its values are known."""
