"""The report as one page for a browser: what is said is decided here in Python, the scripts only draw it."""
