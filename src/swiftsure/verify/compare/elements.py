"""Elements of arrays: types that NumPy has no name for, bits, units in the last place, values as float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""The upper half of a float32. NumPy has no such type, so an array keeps the bits under this name."""
RAW = np.dtype([("byte", "u1")])
"""Bytes of a file whose format is not read: they can be compared, they are not numbers."""

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)  # (256,) bits set in a byte
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_AT_ONCE = 1 << 20


def type_name(array: Array) -> str:
    """``float32``, ``>f4`` where the byte order is not this machine's, ``bfloat16``, ``bytes``."""
    if array.dtype == BFLOAT16:
        return "bfloat16"
    if array.dtype == RAW:
        return "bytes"
    return str(array.dtype)


def is_float(array: Array) -> bool:
    return array.dtype == BFLOAT16 or array.dtype.kind == "f"


def is_number(array: Array) -> bool:
    """Whether differences between its elements mean anything; complex and boolean arrays count."""
    return array.dtype == BFLOAT16 or array.dtype.kind in "biufc"


def chunks(array: Array, size: int = _AT_ONCE) -> Iterator[tuple[int, Array]]:
    """``(start, elements)`` over an array in logical order, at most ``size`` flat elements at a time: it may lie on disk."""
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        for start in range(0, flat.size, size):
            yield start, np.asarray(flat[start : start + size])
    elif array.size:
        flat_iterator = array.flat  # a copy of a chunk, where reshape would copy the whole
        for start in range(0, array.size, size):
            yield start, np.asarray(flat_iterator[start : start + size])


def words(elements: Array) -> Array:
    """The bits of flat elements ``(n,)``: ``(n,)`` unsigned words, or ``(n, bytes)`` for elements wider than a word."""
    contiguous = np.ascontiguousarray(elements)
    word = _WORDS.get(elements.dtype.itemsize)
    if word is not None:
        return contiguous.view(word)
    return contiguous.view(np.uint8).reshape(elements.size, elements.dtype.itemsize)


def differing(a: Array, b: Array) -> NDArray[np.intp]:
    """Positions at which two flat arrays of one type differ in any bit, ascending."""
    changed = words(a) != words(b)
    return np.flatnonzero(changed if changed.ndim == 1 else changed.any(axis=1))


def bits_differing(a: Array, b: Array) -> int:
    """Bits that differ between two flat arrays of one type."""
    return int(_ONES[np.bitwise_xor(words(a), words(b)).reshape(-1).view(np.uint8)].sum(dtype=np.int64))


def ulps_apart(a: Array, b: Array) -> NDArray[np.uint64]:
    """How many representable values lie between floats of one type, element by element; -0.0 and 0.0 are one apart.

    The distance of bit patterns in the order of the values. What it says of a NaN means nothing.
    """
    low, high = _ordered(a), _ordered(b)
    distance: NDArray[np.uint64] = np.where(low > high, low - high, high - low)
    return distance


def _ordered(floats: Array) -> NDArray[np.uint64]:
    """Unsigned numbers in the order of the floats: negative ones are turned round, so that neighbours differ by one."""
    native = floats if floats.dtype == BFLOAT16 else floats.astype(floats.dtype.newbyteorder("="))
    bits = words(native).astype(np.uint64)
    sign = np.uint64(1 << (8 * floats.dtype.itemsize - 1))
    mask = np.uint64((1 << (8 * floats.dtype.itemsize)) - 1)
    ordered: NDArray[np.uint64] = np.where(bits & sign, mask - bits, bits | sign)
    return ordered


def as_float64(elements: Array) -> NDArray[Any]:
    """Values as float64, or complex128 for complex ones; bfloat16 widened exactly."""
    with np.errstate(invalid="ignore"):  # widening a signalling NaN quiets it, which is no fault of what is compared
        if elements.dtype == BFLOAT16:
            return (words(elements).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return elements.astype(np.complex128 if elements.dtype.kind == "c" else np.float64)


def index_text(flat: int, shape: tuple[int, ...]) -> str:
    """``[3, 17]`` for a position in logical order."""
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(flat, shape))}]"


def text_of(element: Array, index: int) -> str:
    """One element of a flat array with its bits, as in ``2.0009999 (0x40001062)``; 17 significant digits tell any two floats apart."""
    one = element[index : index + 1]
    if element.dtype == RAW:
        return f"0x{int(words(one)[0]):02x}"
    value = as_float64(one)[0] if element.dtype == BFLOAT16 else one[0]
    if not (is_float(element) or element.dtype.kind == "c"):
        return repr(value.item())
    return f"{value!s} (0x{one.astype(one.dtype.newbyteorder('>')).tobytes().hex()})"
