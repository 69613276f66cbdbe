"""One question per file: Problem in, CheckResult out."""
