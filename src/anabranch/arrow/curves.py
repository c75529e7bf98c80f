"""Space-filling curves: positions of grid points on curves that keep near points together.

A point is one code of `bits` bits for each dimension. Together these are at most 63 bits, and so is the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Keys: TypeAlias = npt.NDArray[np.uint64]

_BLOCK: Final = 1 << 14
"""Number of points that fit a core's cache while they are worked on."""


def zorder(codes: Sequence[Codes], bits: int) -> Keys:
    """Return positions on the Z-order curve: the bits of all codes in turn, the highest first.

    Args:
        codes: for each dimension one array, of one length.
        bits: of a code, at most 16.
    """
    spread = _spread(len(codes), bits)
    key = spread[codes[0]]
    for code in codes[1:]:
        key = (key << np.uint64(1)) | spread[code]
    return key


def hilbert(codes: Sequence[Codes], bits: int) -> Keys:
    """Return positions on the Hilbert curve, where successive positions are neighbouring points.

    Arguments as of `zorder`. After J. Skilling, "Programming the Hilbert curve" (2004): points are turned into the
    transposed index, whose bits are those of the place as the curve of Z-order has them.
    """
    blocks = range(0, len(codes[0]), _BLOCK)
    places = [_hilbert([code[start : start + _BLOCK] for code in codes], bits) for start in blocks]
    return np.concatenate(places) if places else np.empty(0, np.uint64)


def _hilbert(codes: Sequence[Codes], bits: int) -> Keys:
    axes = [code.astype(np.uint32) for code in codes]
    first = axes[0]
    for bit in range(bits - 1, 0, -1):
        below = np.uint32((1 << bit) - 1)
        for axis in axes:
            # Where the bit is set the first axis is turned around below it, elsewhere the two are exchanged.
            turned = _filled(axis, bit) & below
            exchanged = (first ^ axis) & (below & ~turned)
            np.bitwise_xor(first, turned | exchanged, out=first)
            if axis is not first:
                np.bitwise_xor(axis, exchanged, out=axis)
    for before, axis in pairwise(axes):
        np.bitwise_xor(axis, before, out=axis)
    turned = np.zeros_like(first)
    for bit in range(bits - 1, 0, -1):
        turned ^= _filled(axes[-1], bit) & np.uint32((1 << bit) - 1)
    return zorder([axis ^ turned for axis in axes], bits)


def _filled(axis: npt.NDArray[np.uint32], bit: int) -> npt.NDArray[np.uint32]:
    """Return all ones where the bit is set, else zero."""
    filled: npt.NDArray[np.uint32] = np.uint32(0) - ((axis >> np.uint32(bit)) & np.uint32(1))
    return filled


@cache
def _spread(dimensions: int, bits: int) -> Keys:
    """Return a table that spreads the bits of a code, to leave room for those of the other dimensions."""
    codes = np.arange(1 << bits, dtype=np.uint64)
    spread = np.zeros_like(codes)
    for bit in range(bits):
        spread |= ((codes >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * dimensions)
    return spread
