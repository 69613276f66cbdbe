LATE = "late right"
