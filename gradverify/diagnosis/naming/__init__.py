"""Names and texts for tensors, elements, numbers and regions in an explanation."""
