"""How much a spec may ask for, so that no file can hang the process or fill its memory."""

from __future__ import annotations

MAX_BYTES = 4 * 2**20  # of one spec file
MAX_FILES = 10_000  # spec files of one run
MAX_DEPTH = 50  # nesting, aliases followed
MAX_NODES = 250_000  # scalars, lists and mappings of one file, aliases counted as often as they are used
MAX_KEYS = 10_000  # of one mapping
MAX_DOCUMENTS = 10_000  # of one file
MAX_MERGED_KEYS = 100_000  # keys of one document after merging, summed over its cases
MAX_ERRORS = 1_000  # reported for one file
MAX_CASES = 100_000  # of one file
MAX_SAMPLES = 100_000
MAX_DIMS = 100  # named sizes
MAX_CHOICES = 100  # values that `explore` lists for an input
MAX_BUDGET = 1_000_000  # legal tries of a search
MAX_TIMEOUT = 1_000_000  # seconds; waiting functions overflow far beyond it
MAX_NAME = 200  # characters of a case's name
MAX_DIMENSIONS = 64  # of a tensor, as in torch
MAX_TENSOR_BYTES = 2 * 2**30
BYTES_PER_ELEMENT = 16  # the widest dtype, complex128
