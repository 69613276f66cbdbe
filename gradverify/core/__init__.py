"""The mathematics: torch and stdlib; knows nothing of YAML, files or terminals."""
