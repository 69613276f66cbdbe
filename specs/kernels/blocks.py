"""Sizes of blocks, shared by the kernels of this folder."""

import triton


def block_of(columns: int) -> int:
    """Return the smallest power of two that is not below `columns`: a block holds a whole row."""
    return triton.next_power_of_2(columns)


def warps_of(block: int) -> int:
    """Return a number of warps for a block: one per 256 numbers, from 1 to 16."""
    return min(max(block // 256, 1), 16)
