"""More Functions with a hidden mistake, written without knowledge of the changes that `gradverify explore` makes."""

from __future__ import annotations

from benchmarks.later_functions import LATER_FUNCTIONS
from benchmarks.later_images import LATER_IMAGES
from benchmarks.later_losses import LATER_LOSSES
from benchmarks.later_sequences import LATER_SEQUENCES
from benchmarks.later_signals import LATER_SIGNALS
from benchmarks.later_tables import LATER_TABLES

LATER = (*LATER_SEQUENCES, *LATER_LOSSES, *LATER_TABLES, *LATER_SIGNALS, *LATER_IMAGES, *LATER_FUNCTIONS)
