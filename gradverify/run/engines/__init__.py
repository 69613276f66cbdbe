"""The engines that tasks run in. Only this package knows which there are."""
