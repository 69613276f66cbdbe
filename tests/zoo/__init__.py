"""Right functions at interesting points, and some wrong ones: what the checks are measured on."""
