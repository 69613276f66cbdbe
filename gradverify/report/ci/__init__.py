"""Reports for other programs: test tables, code scanning, job pages, annotations."""
