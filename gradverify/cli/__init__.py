"""The command line: the only place that opens files, prints and exits."""
