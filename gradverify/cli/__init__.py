"""The command line: one command per file; the only place that opens report files, prints and exits."""
