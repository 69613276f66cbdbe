"""Constants that mean the same in several files of the diagnosis. Those of one file are defined there."""

EQUAL_FACTORS = 1e-5  # relative difference of ratios, of derivatives or of errors that count as equal
EQUAL_ENTRIES = 1e-6  # relative difference of entries, or of sums of them, that count as equal
EXACT = 1e-12  # relative: rounding of a product in float64, and of a factor that is compared with decimals
NEGLIGIBLE = 1e-9  # of the largest entry: what is smaller counts as zero
VARIES = 0.01  # relative variation that rules out a constant
ALMOST_ALL = 0.9  # share of the affected entries, of those of an element, or of the inputs
CREDIBLE = 0.1  # chance of a coincidence above which a pattern is not reported
NO_ACCIDENT = 3  # wrong entries, rows of a matrix or distinct values: fewer may show a pattern by accident
AGREEING = 4  # entries, or distinct values, that have to agree: fewer may do so by accident
