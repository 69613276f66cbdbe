"""The engine that runs tasks on the nodes of a Ray cluster."""
