"""bfloat16 in Triton's interpreter: every operation is done in float32 and rounded to nearest, ties to even.

The interpreter holds a block of bfloat16 numbers as the uint16 array of their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NAN = np.uint16(0x7FC0)  # its bits
_ON_BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def with_bfloat16(interpreter: Any) -> None:
    """Replace the operations of the module `triton.runtime.interpreter` that take or return bfloat16.

    Raises AttributeError if the module has no such operations.
    """
    _replace_cast(interpreter)
    _replace_arithmetic(interpreter)
    _replace_fused(interpreter)
    _replace_sum(interpreter)
    _add_constant(interpreter)


def to_float32(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Return the numbers with these bfloat16 bits."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32).reshape(bits.shape)


def to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 numbers; of two as near, those of the even one."""
    bits = np.ascontiguousarray(values).view(np.uint32).reshape(values.shape)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), _NAN, rounded)


def _replace_cast(interpreter: Any) -> None:
    cast = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if _is_bfloat16(interpreter, target):
            return source if _has_bits(interpreter, source) else _narrowed(interpreter, source)
        return cast(self, _widened(interpreter, source), target)

    interpreter.InterpreterBuilder.cast_impl = cast_impl


def _replace_arithmetic(interpreter: Any) -> None:
    binary, ternary = interpreter.InterpreterBuilder.binary_op, interpreter.InterpreterBuilder.ternary_op

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if operation in _ON_BITS or not _has_bits(interpreter, left):
            return binary(self, left, right, operation)
        result = binary(self, _widened(interpreter, left), _widened(interpreter, right), operation)
        if result.data.dtype == bool:  # a comparison; the interpreter gives it the dtype of the left side
            return interpreter.TensorHandle(result.data, left.dtype.scalar)
        return _narrowed(interpreter, result)

    def ternary_op(self: Any, first: Any, second: Any, third: Any, operation: Any) -> Any:
        if operation is not np.clip or not _is_bfloat16(interpreter, third.dtype):
            return ternary(self, first, second, third, operation)
        wide = (_widened(interpreter, each) for each in (first, second, third))
        return _narrowed(interpreter, ternary(self, *wide, operation))

    interpreter.InterpreterBuilder.binary_op = binary_op
    interpreter.InterpreterBuilder.ternary_op = ternary_op


def _replace_fused(interpreter: Any) -> None:
    fma, dot = interpreter.InterpreterBuilder.create_fma, interpreter.InterpreterBuilder.create_dot

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        result = fma(self, *(_widened(interpreter, each) for each in (x, y, z)))
        return _narrowed(interpreter, result) if _is_bfloat16(interpreter, z.dtype) else result

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, _widened(interpreter, a), _widened(interpreter, b), *rest)

    interpreter.InterpreterBuilder.create_fma = create_fma
    interpreter.InterpreterBuilder.create_dot = create_dot


def _replace_sum(interpreter: Any) -> None:
    sum_of = interpreter.ReduceOps.sum

    def summed(self: Any, block: Any) -> Any:
        if not _is_bfloat16(interpreter, block.dtype):
            return sum_of(self, block)
        data = _sum_of_pairs(block.handle.data, self.axis)
        return self.to_tensor(np.expand_dims(data, self.axis) if self.keep_dims else data, block.dtype)

    interpreter.ReduceOps.sum = summed


def _add_constant(interpreter: Any) -> None:
    def get_bf16(_: Any, value: float) -> Any:
        return _narrowed(interpreter, interpreter.TensorHandle(np.array([value], np.float32), interpreter.tl.float32))

    interpreter.InterpreterBuilder.get_bf16 = get_bf16


def _is_bfloat16(interpreter: Any, dtype: Any) -> bool:
    return bool(dtype.scalar == interpreter.tl.bfloat16)


def _has_bits(interpreter: Any, block: Any) -> bool:
    """Return True for a block of bfloat16 numbers; the result of comparing them has their dtype, too."""
    return _is_bfloat16(interpreter, block.dtype) and block.data.dtype != bool


def _widened(interpreter: Any, block: Any) -> Any:
    """Return a block in float32 if it is one of bfloat16 numbers, else the block itself."""
    if not _has_bits(interpreter, block):
        return block
    return interpreter.TensorHandle(to_float32(block.data), interpreter.tl.float32)


def _narrowed(interpreter: Any, block: Any) -> Any:
    """Return a block of any numbers in bfloat16."""
    return interpreter.TensorHandle(to_bfloat16(block.data.astype(np.float32)), interpreter.tl.bfloat16)


def _sum_of_pairs(bits: NDArray[Any], axis: int | None) -> NDArray[Any]:
    """Return the sum along an axis, as a GPU forms it: halves are added, and each addition is rounded."""
    rest: NDArray[Any] = np.moveaxis(bits, axis, 0) if axis is not None else bits.reshape(-1)
    while len(rest) > 1:
        half = len(rest) // 2
        rest = to_bfloat16(to_float32(rest[:half]) + to_float32(rest[half:]))
    return np.asarray(rest[0])
