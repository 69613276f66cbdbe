"""Every function of a package with a gradient written by hand."""
