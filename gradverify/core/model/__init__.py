"""The function under test: binding its inputs, calling it, recording its graph, and its real coordinates."""
