LATE = "late left"
