"""Constants that mean the same in several rooms. Those of one file are defined there."""

LAST_DIGITS = 2.0**-46  # of a product, of the terms of a sum, or of the row and column: rounding in backward
LOST_UNITS = 8.0  # units of rounding: a change of an output up to this may be rounding, as by a vectorised kernel
SUM_UNITS = 16.0  # eps, or units of rounding: what accumulates in a sum that is rounded at each term
RESULT_UNITS = 4.0  # eps, or units of rounding: relative error that a right result may have
CANCELLATION_UNITS = 128.0  # units of rounding: error that may be left where terms cancel, or noise that it explains
LARGEST_CANCELLATION = 2.0**-10  # of a number: largest such error, if one unit of rounding is less
CLEARLY_ABOVE = 64.0  # times the rounding or the noise: what is larger is not rounding or noise alone
CLEARLY_LESS = 0.25  # of a number: what is clearly less than it
SMALL_PART = 0.1  # of an error, a gap, a distance or a sum: what is small beside it
ALIKE = 2.0  # ratio of sizes that count as the same, at most, or by which a bound may be too small
EXAMINED = 64  # groups of rows or columns, slices, periods or outputs that are looked at, at most
NEARBY_POINTS = 8  # random points, or pairs of opposite ones, at which a function is examined around the point
INPUT_EPS = 2.0  # eps of low precision: displacement of all inputs that their rounding may cause
SEVERAL = 2  # steps, vectors, rows, elements or counts: what a single one shows may be an accident
FEW = 3  # directions, groups, rows, trials or rounds that are tried, and small falls in a row that are no accident
CONVINCING = 5  # steps, changes or pairs of directions: noise does not look alike at so many by accident
