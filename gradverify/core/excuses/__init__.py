"""What may explain an accusation before it is raised: one explanation per file."""
