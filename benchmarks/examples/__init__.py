"""The wrong and the mended example of each code and cause, run as they stand on the pages."""
